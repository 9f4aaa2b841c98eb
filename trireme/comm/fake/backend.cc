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

/// Of one world, by group.
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
    ledger_->groups[identity.name];  // there even if it is never used
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

  Token all_reduce(const at::Tensor& t, ReduceOp, CallSite) override {
    return done("all_reduce", t.numel(), t);
  }
  Token broadcast(const at::Tensor& t, int, CallSite) override {
    return done("broadcast", t.numel(), t);
  }
  Token reduce(const at::Tensor& t, int, ReduceOp, CallSite) override {
    return done("reduce", t.numel(), t);
  }
  Token all_gather(const at::Tensor& output, const at::Tensor& input, CallSite) override {
    const Token token = done("all_gather", input.numel() * size(), input);
    repeat(output, input);
    return token;
  }
  Token reduce_scatter(const at::Tensor& output, const at::Tensor& input, ReduceOp,
                       CallSite) override {
    const Token token = done("reduce_scatter", input.numel(), input);
    own_part(output, input);
    return token;
  }
  Token gather(const at::Tensor& output, const at::Tensor& input, int root, CallSite) override {
    const Token token = done("gather", input.numel() * size(), input);
    if (rank() == root) repeat(output, input);
    return token;
  }
  Token scatter(const at::Tensor& output, const at::Tensor& input, int root, CallSite) override {
    const Token token = done("scatter", output.numel() * size(), output);
    if (rank() == root) own_part(output, input);
    return token;
  }
  Token all_to_all(const at::Tensor& output, const at::Tensor& input,
                   const std::vector<int64_t>& output_counts,
                   const std::vector<int64_t>& input_counts, CallSite) override {
    const Token token = done("all_to_all", input.numel(), input);
    at::NoGradGuard no_grad;
    const at::Tensor to = output.view({-1}), from = input.view({-1});
    to.zero_();
    int64_t in = 0, out = 0;
    for (size_t r = 0; r < output_counts.size(); ++r) {
      const int64_t common = std::min(output_counts[r], input_counts[r]);
      to.narrow(0, out, common).copy_(from.narrow(0, in, common));
      out += output_counts[r];
      in += input_counts[r];
    }
    return token;
  }
  Token send(const at::Tensor& t, int, int, CallSite) override {
    return done("send", t.numel(), t);
  }
  Token recv(const at::Tensor& t, int from, int, CallSite) override {
    Token token = done("recv", t.numel(), t);
    token.peer = from == kAnySource ? (rank() == 0 ? 1 : 0) : from;
    return token;
  }
  Token barrier(CallSite) override { return count("barrier", 0); }

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

  Token done(const char* op, int64_t numel, const at::Tensor& t) {
    return count(op, static_cast<uint64_t>(numel) * t.element_size());
  }
  Token count(const char* op, uint64_t bytes) {
    check_alive();
    std::lock_guard lock(ledger_->mutex);
    auto& c = ledger_->groups[identity.name].operations[op];
    ++c.calls;
    c.bytes += bytes;
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
