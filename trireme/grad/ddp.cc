// SPDX-License-Identifier: Apache-2.0
#include "trireme/grad/ddp.h"

#include <ATen/core/grad_mode.h>
#include <torch/nn/module.h>

#include "trireme/base/check.h"
#include "trireme/grad/hook_adapter.h"
#include "trireme/grad/module_sync.h"
#include "trireme/grad/reducer.h"

namespace trireme {
namespace {

NamedTensors trainable(const torch::nn::Module& module) {
  NamedTensors list;
  for (const auto& item : module.named_parameters())
    if (item.value().requires_grad()) list.emplace_back(item.key(), item.value());
  return list;
}

// What is only broadcast: frozen parameters and buffers.
NamedTensors untrained(const torch::nn::Module& module) {
  NamedTensors list;
  for (const auto& item : module.named_parameters())
    if (!item.value().requires_grad()) list.emplace_back(item.key(), item.value());
  for (const auto& item : module.named_buffers())
    if (item.value().defined()) list.emplace_back(item.key(), item.value());
  return list;
}

NamedTensors buffers_of(const torch::nn::Module& module) {
  NamedTensors list;
  for (const auto& item : module.named_buffers())
    if (item.value().defined()) list.emplace_back(item.key(), item.value());
  return list;
}

ReducerOptions reducer_options(const Group& group, const DdpOptions& o) {
  return {bucket_sizes_for(group, o.bucket_bytes, o.first_bucket_bytes), ReduceOp::avg, o.hook};
}

}  // namespace

BucketSizes bucket_sizes_for(const Group& group, size_t bytes, size_t first_bytes) {
  BucketSizes sizes;
  if (group.backend() == "local") sizes = {size_t{1} << 20, size_t{4} << 20};
  if (bytes) sizes.bytes = bytes;
  sizes.first_bytes = first_bytes ? first_bytes : std::min(sizes.first_bytes, sizes.bytes);
  return sizes;
}

struct DistributedDataParallel::Impl {
  Impl(NamedTensors parameters, NamedTensors rest, NamedTensors buffers, Group g, DdpOptions o)
      : group(std::move(g)),
        options(std::move(o)),
        buffers(std::move(buffers)),
        reducer((synchronise(group, parameters, rest), std::move(parameters)), group,
                reducer_options(group, options)),
        hooks(reducer, HookAdapter::Rounds::automatic) {
    if (!this->buffers.empty() && options.buffers != BufferPolicy::none)
      hooks.on_close([this] { share_buffers(); });
  }

  static void synchronise(Group& group, const NamedTensors& parameters, const NamedTensors& rest) {
    check<UsageError>(
        !parameters.empty(),
        "DistributedDataParallel: no parameter requires a gradient, so there is nothing to "
        "reduce; use the module as it is");
    verify_same(group, parameters, "parameter");
    verify_same(group, rest, "frozen parameter or buffer");
    broadcast_tensors(group, parameters);
    broadcast_tensors(group, rest);
  }

  void share_buffers() {
    at::NoGradGuard no_grad;
    std::vector<Work> works;
    for (auto& [name, t] : buffers) {
      at::Tensor data = t.variable_data();
      works.push_back(options.buffers == BufferPolicy::mean && t.is_floating_point()
                          ? group.all_reduce(data, ReduceOp::avg)
                          : group.broadcast(data, 0));
    }
    for (auto& w : works) w.wait();
  }

  Group group;
  DdpOptions options;
  NamedTensors buffers;
  Reducer reducer;
  HookAdapter hooks;
};

DistributedDataParallel::DistributedDataParallel(torch::nn::Module& module, Group group,
                                                 DdpOptions options)
    : impl_(std::make_unique<Impl>(trainable(module), untrained(module), buffers_of(module),
                                   std::move(group), std::move(options))) {}

DistributedDataParallel::DistributedDataParallel(NamedTensors parameters, NamedTensors buffers,
                                                 Group group, DdpOptions options)
    : impl_(std::make_unique<Impl>(std::move(parameters), buffers, buffers, std::move(group),
                                   std::move(options))) {}

DistributedDataParallel::~DistributedDataParallel() = default;

DistributedDataParallel::NoSync::NoSync(DistributedDataParallel& ddp) : ddp_(ddp) {
  ddp_.impl_->hooks.set_paused(true);
}
DistributedDataParallel::NoSync::~NoSync() { ddp_.impl_->hooks.set_paused(false); }

void DistributedDataParallel::reset() { impl_->hooks.reset(); }
const Reducer& DistributedDataParallel::reducer() const { return impl_->reducer; }

}  // namespace trireme
