// SPDX-License-Identifier: Apache-2.0
#include "trireme/comm/fake/backend.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <mutex>

#include "trireme/base/check.h"
#include "trireme/comm/fake/traffic.h"
#include "trireme/comm/group_check.h"

namespace trireme {
namespace detail {
namespace {

/// The traffic of one world, by group.
struct Ledger {
  std::mutex mutex;
  std::map<std::string, FakeTraffic> groups;
};

class FakeBackend final : public Backend {
 public:
  FakeBackend(int rank, int size, Duration timeout, std::string name,
              std::shared_ptr<Ledger> ledger)
      : Backend(rank, size, timeout), ledger_(std::move(ledger)) {
    identity.name = std::move(name);
    std::lock_guard lock(ledger_->mutex);
    ledger_->groups[identity.name];  // listed even if it is never used
  }

  const std::string& name() const override {
    static const std::string name = "fake";
    return name;
  }
  bool supports(Collective, at::ScalarType, at::DeviceType) const override { return true; }
  bool supports(ReduceOp, at::ScalarType) const override { return true; }
  at::Tensor empty(at::IntArrayRef sizes, at::TensorOptions options) override {
    return at::empty(sizes, options);
  }

  Token post(const Call& call) override {
    Token token = count(call);
    switch (call.op) {
      case Collective::all_gather:
        repeat(*call.output, *call.input);
        break;
      case Collective::reduce_scatter:
        own_part(*call.output, *call.input);
        break;
      case Collective::gather:
        if (rank() == call.root) repeat(*call.output, *call.input);
        break;
      case Collective::scatter:
        if (rank() == call.root) own_part(*call.output, *call.input);
        break;
      case Collective::all_to_all:
        common_parts(call);
        break;
      case Collective::recv:
        token.peer = call.root == kAnySource ? (rank() == 0 ? 1 : 0) : call.root;
        break;
      default:
        break;
    }
    return token;
  }

  void wait(Token, Duration) override { check_alive(); }
  bool completed(Token) override {
    check_alive();
    return true;
  }
  int source(Token token) override { return token.peer; }
  int64_t shared_bytes() const override { return 0; }
  void progress() override {}
  void abort(const std::string& why, AbortKind) override {
    if (aborted_.empty()) aborted_ = why.empty() ? "aborted" : why;
  }
  void when_complete(Token, std::function<void()> done) override { done(); }

  std::shared_ptr<Backend> subgroup(const std::vector<int>& members,
                                    const std::string& name) override {
    check_alive();
    const auto me = std::find(members.begin(), members.end(), rank());
    check<UsageError>(me != members.end(), "rank {} is not in the group {}", rank(), name);
    return std::make_shared<FakeBackend>(static_cast<int>(me - members.begin()),
                                         static_cast<int>(members.size()), timeout(), name,
                                         ledger_);
  }

  std::map<std::string, FakeTraffic> traffic() const {
    std::lock_guard lock(ledger_->mutex);
    return ledger_->groups;
  }

 private:
  void check_alive() const {
    if (!aborted_.empty()) throw Aborted(aborted_, {rank(), -1, "", -1});
  }

  /// Bytes of the tensor of all ranks if a call has one, else of this rank's.
  int64_t bytes_of(const Call& call) const {
    const at::Tensor* t = call.counted();
    if (!t) return 0;
    const bool of_all = call.op == Collective::all_gather ||
                        call.op == Collective::reduce_scatter || call.op == Collective::gather ||
                        call.op == Collective::scatter;
    return static_cast<int64_t>(t->nbytes()) * (of_all ? size() : 1);
  }
  Token count(const Call& call) {
    check_alive();
    std::lock_guard lock(ledger_->mutex);
    auto& c = ledger_->groups[identity.name].operations[name_of(call.named())];
    ++c.calls;
    c.bytes += static_cast<uint64_t>(bytes_of(call));
    return {};  // complete
  }

  void repeat(const at::Tensor& output, const at::Tensor& input) const {
    at::NoGradGuard no_grad;
    output.view({size(), input.numel()}).copy_(input.view({1, input.numel()}));
  }
  void own_part(const at::Tensor& output, const at::Tensor& input) const {
    at::NoGradGuard no_grad;
    output.view({-1}).copy_(input.view({-1}).narrow(0, rank() * output.numel(), output.numel()));
  }

  /// Every rank is a copy of this one, so what it would send elsewhere does not come back either.
  static void common_parts(const Call& call) {
    at::NoGradGuard no_grad;
    const at::Tensor to = call.output->view({-1}), from = call.input->view({-1});
    const auto &outputs = *call.output_counts, &inputs = *call.input_counts;
    to.zero_();
    int64_t in = 0, out = 0;
    for (size_t r = 0; r < outputs.size(); ++r) {
      const int64_t common = std::min(outputs[r], inputs[r]);
      to.narrow(0, out, common).copy_(from.narrow(0, in, common));
      out += outputs[r];
      in += inputs[r];
    }
  }

  const std::shared_ptr<Ledger> ledger_;
  std::string aborted_;
};

}  // namespace

std::shared_ptr<Backend> fake_backend(const BackendSpec& spec) {
  check<UsageError>(spec.rank >= 0 && spec.rank < spec.size, "rank {} is not in a world of {}",
                    spec.rank, spec.size);
  return std::make_shared<FakeBackend>(spec.rank, spec.size, spec.timeout, spec.name,
                                       std::make_shared<Ledger>());
}

namespace {
const FakeBackend& as_fake(const Group& group) {
  check<UsageError>(static_cast<bool>(group), "fake_traffic: no group");
  const auto* fake = dynamic_cast<const FakeBackend*>(group.get());
  check<UsageError>(fake != nullptr, "fake_traffic: the backend is {}, not fake", group.backend());
  return *fake;
}
}  // namespace

}  // namespace detail

std::map<std::string, FakeTraffic> fake_traffic_by_group(const Group& group) {
  return detail::as_fake(group).traffic();
}

FakeTraffic fake_traffic(const Group& group) {
  return detail::as_fake(group).traffic()[group.name()];
}

}  // namespace trireme
