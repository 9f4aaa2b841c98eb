// SPDX-License-Identifier: Apache-2.0
#include "tests/support/pretend_device/group.h"

#include <ATen/ops/empty.h>
#include <c10/core/DeviceGuard.h>

#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include "tests/support/pretend_device/kernels.h"
#include "tests/support/pretend_device/machine.h"
#include "tests/support/pretend_device/pretend_device.h"
#include "trireme/base/check.h"
#include "trireme/comm/start/run.h"
#include "trireme/comm/wrappers/forwarding_backend.h"

namespace trireme::pretend {
namespace {

using detail::Token;

/// The group of a rank whose calls are made by the thread of one stream, which all groups of the
/// rank share: the group within has one user at a time.
class LateBackend final : public detail::ForwardingBackend {
 public:
  LateBackend(std::shared_ptr<Backend> inner, Queue& stream)
      : ForwardingBackend(std::move(inner)), stream_(stream) {}
  ~LateBackend() override { stream_.drain(); }

  bool supports(Collective op, at::ScalarType dtype, at::DeviceType device) const override {
    return inner_->supports(op, dtype, device == c10::kPrivateUse1 ? c10::kCPU : device);
  }
  using ForwardingBackend::supports;
  bool wait_orders_streams(at::DeviceType device) const override {
    return device == c10::kPrivateUse1;
  }
  at::Tensor empty(at::IntArrayRef sizes, at::TensorOptions options) override {
    return at::empty(sizes, options);
  }
  at::Tensor shared(at::IntArrayRef sizes, at::TensorOptions options, int owner) override {
    return Backend::shared(sizes, options, owner);
  }

  Token post(const detail::Call& call) override {
    rethrow();
    auto mine = std::make_shared<Posted>(call);
    if (mine->on_device) stream_.wait_for(current().newest());
    const Ticket ticket = stream_.enqueue([this, mine] { run(*mine); });
    posted_[++last_] = {ticket, mine, {}};
    Token token;
    token.number = last_;
    token.kind = 1;  // under way
    return token;
  }
  void wait(Token token, Duration) override {
    const auto at = posted_.find(token.number);
    if (at == posted_.end()) return rethrow();
    Pending pending = std::move(at->second);
    posted_.erase(at);
    if (pending.call->on_device)
      current().wait_for(pending.ticket);
    else
      host_wait(pending.ticket, "a collective of the CPU's tensors");
    rethrow();
    if (pending.call->call.op == Collective::recv) sources_[token.number] = pending.call;
    if (pending.done) pending.done();
  }
  bool completed(Token token) override {
    const auto at = posted_.find(token.number);
    if (at == posted_.end()) return true;
    if (!at->second.ticket.done()) return false;
    wait(token, {});
    return true;
  }
  int source(Token token) override {
    const auto& call = sources_.at(token.number);
    stream_.drain();
    return call->source;
  }
  void when_complete(Token token, std::function<void()> done) override {
    const auto at = posted_.find(token.number);
    if (at == posted_.end()) return done();
    at->second.done = std::move(done);
  }
  void progress() override {}
  bool on_stall(std::function<void()>) override { return false; }
  std::unique_ptr<detail::WaitBoard> make_board() override { return nullptr; }
  std::shared_ptr<Backend> subgroup(const std::vector<int>& members,
                                    const std::string& name) override {
    stream_.drain();
    return std::make_shared<LateBackend>(inner_->subgroup(members, name), stream_);
  }

 private:
  // A call with what it points to. The tensors live until it is done.
  struct Posted {
    explicit Posted(const detail::Call& c) : call(c) {
      if (c.input) input = *c.input;
      if (c.output) output = *c.output;
      on_device = (input.defined() && is_ours(input)) || (output.defined() && is_ours(output));
      input_there = there(input);
      output_there = c.output == c.input ? input_there : there(output);
      if (c.input) call.input = &input_there;
      if (c.output) call.output = c.output == c.input ? &input_there : &output_there;
      if (c.input_counts) call.input_counts = &(input_counts = *c.input_counts);
      if (c.output_counts) call.output_counts = &(output_counts = *c.output_counts);
    }
    Posted(const Posted&) = delete;
    static at::Tensor there(const at::Tensor& t) {
      return t.defined() && is_ours(t) ? for_kernels(t) : t;
    }
    detail::Call call;
    at::Tensor input, output, input_there, output_there;
    std::vector<int64_t> input_counts, output_counts;
    bool on_device = false;
    int source = -1;
  };
  struct Pending {
    Ticket ticket;
    std::shared_ptr<Posted> call;
    std::function<void()> done;
  };

  Queue& current() const {
    return Machine::of_process().current_queue(
        {c10::kPrivateUse1, static_cast<c10::DeviceIndex>(stream_.device())});
  }
  void run(Posted& mine) {
    try {
      const Token token = inner_->post(mine.call);
      inner_->wait(token, timeout());
      if (mine.call.op == Collective::recv) mine.source = inner_->source(token);
    } catch (...) {
      std::lock_guard lock(mutex_);
      if (!error_) error_ = std::current_exception();
    }
  }
  // As a GPU's, an error shows at a later call.
  void rethrow() {
    std::lock_guard lock(mutex_);
    if (error_) std::rethrow_exception(error_);
  }

  Queue& stream_;
  uint64_t last_ = 0;
  std::map<uint64_t, Pending> posted_;
  std::map<uint64_t, std::shared_ptr<Posted>> sources_;
  std::mutex mutex_;
  std::exception_ptr error_;
};

}  // namespace

void run_on_devices(int n, const std::function<void(Group, c10::Device)>& fn) {
  check<UsageError>(n <= kDevices, "{} ranks want a pretend device each, and there are {}", n,
                    kDevices);
  run_threads(n, [&](Group plain) {
    const c10::Device mine = device(plain.rank());
    const c10::DeviceGuard guard(mine);
    Queue& stream = Machine::of_process().queue(stream_from_pool(plain.rank()));
    // The backend within is the plain group's, which outlives this one.
    fn(Group(std::make_shared<LateBackend>(
           std::shared_ptr<detail::Backend>(std::shared_ptr<void>(), plain.get()), stream)),
       mine);
    synchronize();
  });
}

}  // namespace trireme::pretend
