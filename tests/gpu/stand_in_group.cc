// SPDX-License-Identifier: Apache-2.0
#include <ATen/ops/empty.h>
#include <c10/core/DeviceGuard.h>

#include <memory>
#include <utility>

#include "tests/gpu/by_device.h"
#include "tests/gpu/stand_in.h"
#include "tests/gpu/stand_in_memory.h"
#include "trireme/base/check.h"
#include "trireme/comm/by_device.h"
#include "trireme/comm/desync/checked_backend.h"
#include "trireme/comm/forwarding_backend.h"
#include "trireme/comm/run.h"

namespace trireme::testing {
namespace {

using detail::Token;

/// As comm/nccl/backend.h: takes CUDA tensors, on one device, and no others.
class StandInNccl final : public detail::ForwardingBackend {
 public:
  using ForwardingBackend::ForwardingBackend;

  const std::string& name() const override {
    static const std::string name = "nccl";
    return name;
  }
  bool supports(Collective op, at::ScalarType dtype, at::DeviceType device) const override {
    const bool reduces = op == Collective::all_reduce || op == Collective::reduce ||
                         op == Collective::reduce_scatter;
    return device == at::kCUDA && (!reduces || dtype != at::kShort);
  }
  bool supports(ReduceOp op, at::ScalarType dtype) const override {
    return op != ReduceOp::band && op != ReduceOp::bor && op != ReduceOp::bxor &&
           dtype != at::kShort && ForwardingBackend::supports(op, dtype);
  }
  at::Tensor empty(at::IntArrayRef sizes, at::TensorOptions options) override {
    return at::empty(sizes, options);
  }
  at::Tensor shared(at::IntArrayRef sizes, at::TensorOptions options, int owner) override {
    return Backend::shared(sizes, options, owner);
  }
  Token all_reduce(const at::Tensor& t, ReduceOp op, CallSite site) override {
    return inner_->all_reduce(mine(t), op, site);
  }
  Token broadcast(const at::Tensor& t, int root, CallSite site) override {
    return inner_->broadcast(mine(t), root, site);
  }
  Token reduce(const at::Tensor& t, int root, ReduceOp op, CallSite site) override {
    return inner_->reduce(mine(t), root, op, site);
  }
  Token all_gather(const at::Tensor& output, const at::Tensor& input, CallSite site) override {
    return inner_->all_gather(mine(output), mine(input), site);
  }
  Token reduce_scatter(const at::Tensor& output, const at::Tensor& input, ReduceOp op,
                       CallSite site) override {
    return inner_->reduce_scatter(mine(output), mine(input), op, site);
  }
  Token gather(const at::Tensor& output, const at::Tensor& input, int root,
               CallSite site) override {
    return inner_->gather(mine(output), mine(input), root, site);
  }
  Token scatter(const at::Tensor& output, const at::Tensor& input, int root,
                CallSite site) override {
    return inner_->scatter(mine(output), mine(input), root, site);
  }
  Token all_to_all(const at::Tensor& output, const at::Tensor& input,
                   const std::vector<int64_t>& output_counts,
                   const std::vector<int64_t>& input_counts, CallSite site) override {
    return inner_->all_to_all(mine(output), mine(input), output_counts, input_counts, site);
  }
  Token send(const at::Tensor& t, int to, int tag, CallSite site) override {
    check<UsageError>(tag <= 0, "send: tag {}; NCCL has no tags", tag);
    return inner_->send(mine(t), to, 0, site);
  }
  Token recv(const at::Tensor& t, int from, int tag, CallSite site) override {
    check<UsageError>(tag <= 0 && from != kAnySource, "recv: NCCL has no tags and no any source");
    return inner_->recv(mine(t), from, 0, site);
  }
  std::unique_ptr<detail::WaitBoard> make_board() override { return nullptr; }
  std::shared_ptr<Backend> subgroup(const std::vector<int>& members,
                                    const std::string& name) override {
    return std::make_shared<StandInNccl>(inner_->subgroup(members, name));
  }

 private:
  at::Tensor mine(const at::Tensor& t) {
    if (!t.defined()) return t;
    check<UsageError>(device_.index() < 0 || device_ == t.device(),
                      "a rank's tensors are on {} and {}: NCCL takes one GPU a rank", device_.str(),
                      t.device().str());
    device_ = t.device();
    return for_kernels(t);
  }
  at::Device device_{at::kCUDA};
};

}  // namespace

int gpu_count() { return kStandInGpus; }
bool gpus_stand_in() { return true; }

namespace {

using MakeBackend =
    std::function<std::shared_ptr<detail::Backend>(std::shared_ptr<detail::Backend>)>;

void run(int n, const MakeBackend& make, const std::function<void(Group, at::Device)>& fn) {
  run_threads(n, [&](Group plain) {
    const at::Device device(at::kCUDA, static_cast<c10::DeviceIndex>(plain.rank() % kStandInGpus));
    const c10::DeviceGuard guard(device);
    // Of the group's backend, which outlives it.
    fn(Group(make(std::shared_ptr<detail::Backend>(std::shared_ptr<void>(), plain.get()))), device);
  });
}

std::shared_ptr<detail::Backend> checked_nccl(std::shared_ptr<detail::Backend> inner) {
  return detail::checked_backend(std::make_shared<StandInNccl>(std::move(inner)), "hash", "world",
                                 nullptr);
}

}  // namespace

void run_on_gpus(int n, const std::function<void(Group, at::Device)>& fn) {
  run(n, checked_nccl, fn);
}

void run_on_gpus_and_cpus(int n, const std::function<void(Group, at::Device)>& fn) {
  run(
      n,
      [](std::shared_ptr<detail::Backend> inner) {
        return detail::by_device_backend("cpu:local,cuda:nccl",
                                         [&](const std::string& name, const std::string&) {
                                           return name == "nccl" ? checked_nccl(inner) : inner;
                                         });
      },
      fn);
}

}  // namespace trireme::testing
