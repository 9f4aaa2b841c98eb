// SPDX-License-Identifier: Apache-2.0
#include "trireme/grad/hooks/cast_hook.h"

#include <ATen/core/grad_mode.h>

#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include "trireme/base/check.h"
#include "trireme/comm/backend.h"
#include "trireme/tensor/host_data.h"

namespace trireme {
namespace {

bool is_half(at::ScalarType type) { return type == at::kHalf || type == at::kBFloat16; }

class Caster {
 public:
  explicit Caster(at::ScalarType wire) : wire_(wire) {}

  Work reduce(Group& group, GradBucket& bucket, ReduceOp op) {
    if (bucket.buffer.scalar_type() == wire_) return group.all_reduce(bucket.buffer, op);
    check<UsageError>(!bucket.buffer.is_complex(),
                      "communication hook: bucket {} is {}, and {} on the wire has no imaginary "
                      "part: leave the hook out",
                      bucket.index, c10::toString(bucket.buffer.scalar_type()),
                      c10::toString(wire_));
    check<UsageError>(group.supports(Collective::all_reduce, wire_, bucket.buffer.device().type()),
                      "communication hook: the {} backend cannot reduce {} on {}", group.backend(),
                      c10::toString(wire_),
                      c10::DeviceTypeName(bucket.buffer.device().type(), true));
    at::NoGradGuard no_grad;
    const at::Tensor kept = bucket.buffer;
    const at::Tensor sent = memory(group, kept);
    sent.copy_(kept);
    const bool as_mean =
        op == ReduceOp::sum && is_half(wire_) && group.supports(ReduceOp::avg, wire_);
    const double back = as_mean ? group.size() : 1;

    // Through the backend: something has to happen between the end of the call and of wait().
    auto handle = std::make_shared<Group>(group);
    std::shared_ptr<detail::Backend> backend(handle, handle->get());
    const detail::Token token = backend->post({.op = Collective::all_reduce,
                                               .reduction = as_mean ? ReduceOp::avg : op,
                                               .input = &sent,
                                               .output = &sent,
                                               .site = CallSite::here()});
    backend->when_complete(token, [kept, sent, back] {
      at::NoGradGuard quiet;
      kept.copy_(sent);
      if (back != 1) kept.mul_(back);
    });
    return Work(std::move(backend), token);
  }

 private:
  // A bucket's own, for several are under way at once; known by the bucket's memory, because copies
  // of a hook may serve several reducers, and those of rank threads at the same time.
  at::Tensor memory(Group& group, const at::Tensor& bucket) {
    std::lock_guard lock(mutex_);
    at::Tensor& mine = memory_[memory_of(bucket)];
    if (!mine.defined() || mine.numel() < bucket.numel() || mine.device() != bucket.device())
      mine = group.empty({bucket.numel()}, bucket.options().dtype(wire_).requires_grad(false));
    return mine.narrow(0, 0, bucket.numel());
  }

  const at::ScalarType wire_;
  std::mutex mutex_;
  std::map<const void*, at::Tensor> memory_;
};

}  // namespace

CommHook cast_hook(at::ScalarType wire) {
  check<UsageError>(is_half(wire) || wire == at::kFloat || wire == at::kDouble,
                    "communication hook: gradients cannot travel as {}: give float16, bfloat16, "
                    "float32 or float64",
                    c10::toString(wire));
  return [caster = std::make_shared<Caster>(wire)](Group& group, GradBucket& bucket, ReduceOp op) {
    return caster->reduce(group, bucket, op);
  };
}

CommHook named_comm_hook(std::string_view name) {
  if (name == "none")
    return [](Group& group, GradBucket& bucket, ReduceOp op) {
      return group.all_reduce(bucket.buffer, op);
    };
  if (name == "fp16") return cast_hook(at::kHalf);
  if (name == "bf16") return cast_hook(at::kBFloat16);
  fail<UsageError>("there is no communication hook '{}': choose none, fp16 or bf16", name);
}

}  // namespace trireme
