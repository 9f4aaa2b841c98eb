// SPDX-License-Identifier: Apache-2.0
#include "trireme/shard/sharded_data_parallel.h"

#include "trireme/grad/ddp_tensors.h"
#include "trireme/grad/hooks/hook_adapter.h"
#include "trireme/shard/replicated_parameters.h"
#include "trireme/shard/unused_after.h"

namespace trireme {

struct ShardedDataParallel::Impl {
  Impl(const DdpTensors& tensors, const ShardGroups& groups, const ShardedDataParallelOptions& o)
      : parameters(tensors, groups,
                   {o.stage, o.bucket_bytes, ReduceOp::avg, false, {}, o.share_weights}),
        hooks(parameters.gradients(), HookAdapter::Rounds::automatic) {
    hooks.contribute_if([this] { return parameters.look(); });
    hooks.on_close([this, unused = unused_after(parameters.gradients(), groups.world,
                                                o.find_unused_parameters)] {
      parameters.follow();
      unused();
    });
  }
  ReplicatedParameters parameters;
  HookAdapter hooks;
};

ShardedDataParallel::ShardedDataParallel(torch::nn::Module& module, ShardGroups groups,
                                         ShardedDataParallelOptions options)
    : impl_(std::make_unique<Impl>(ddp_tensors(module), groups, options)) {
  impl_->parameters.add_layouts("", module);
}

ShardedDataParallel::ShardedDataParallel(torch::jit::Module& module, ShardGroups groups,
                                         ShardedDataParallelOptions options)
    : impl_(std::make_unique<Impl>(ddp_tensors(module), groups, options)) {}

ShardedDataParallel::ShardedDataParallel(NamedTensors parameters, NamedTensors buffers,
                                         ShardGroups groups, ShardedDataParallelOptions options)
    : impl_(std::make_unique<Impl>(ddp_tensors(parameters, buffers), groups, options)) {}

ShardedDataParallel::~ShardedDataParallel() = default;

ShardedParameters& ShardedDataParallel::sharded() { return impl_->parameters; }

ShardedDataParallel::NoSync::NoSync(ShardedDataParallel& zero)
    : zero_(zero), before_(zero.impl_->hooks.paused()) {
  zero_.impl_->hooks.set_paused(true);
}
ShardedDataParallel::NoSync::~NoSync() { zero_.impl_->hooks.set_paused(before_); }

void ShardedDataParallel::reduce_accumulated() { impl_->hooks.reduce_accumulated(true); }

void ShardedDataParallel::reset() { impl_->hooks.reset(); }

const GradientScatter& ShardedDataParallel::gradients() const {
  return impl_->parameters.gradients();
}

}  // namespace trireme
