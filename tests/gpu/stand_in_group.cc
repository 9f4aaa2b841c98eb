// SPDX-License-Identifier: Apache-2.0
#include <ATen/ops/empty.h>
#include <c10/core/DeviceGuard.h>

#include <memory>
#include <utility>

#include "tests/gpu/by_device.h"
#include "tests/gpu/stand_in.h"
#include "tests/gpu/stand_in_memory.h"
#include "trireme/base/check.h"
#include "trireme/comm/desync/checked_backend.h"
#include "trireme/comm/start/run.h"
#include "trireme/comm/wrappers/by_device.h"
#include "trireme/comm/wrappers/forwarding_backend.h"

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
    return device == at::kCUDA && (!facts_of(op).reduces || dtype != at::kShort);
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
  Token post(const detail::Call& call) override {
    if (call.facts().is_message)
      check<UsageError>(call.tag <= 0, "{}: tag {}; NCCL has no tags", name_of(call.op), call.tag);
    if (call.op == Collective::recv)
      check<UsageError>(call.root != kAnySource, "recv: NCCL has no any source");
    detail::Call mine = call;
    const at::Tensor input = call.input ? on_gpu(*call.input) : at::Tensor(),
                     output = call.output ? on_gpu(*call.output) : at::Tensor();
    if (call.input) mine.input = &input;
    if (call.output) mine.output = call.output == call.input ? &input : &output;
    if (call.facts().is_message) mine.tag = 0;
    return inner_->post(mine);
  }
  std::unique_ptr<detail::WaitBoard> make_board() override { return nullptr; }
  std::shared_ptr<Backend> subgroup(const std::vector<int>& members,
                                    const std::string& name) override {
    return std::make_shared<StandInNccl>(inner_->subgroup(members, name));
  }

 private:
  at::Tensor on_gpu(const at::Tensor& t) {
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
