// SPDX-License-Identifier: Apache-2.0
#include "trireme/train/build/zero_setup.h"

#include "trireme/base/check.h"
#include "trireme/config/file_states.h"
#include "trireme/config/sections/comm.h"
#include "trireme/config/sections/offload.h"
#include "trireme/config/sections/parallelism.h"
#include "trireme/config/sections/training.h"
#include "trireme/config/sections/zero.h"
#include "trireme/optim/host_optimizer.h"
#include "trireme/shard/offload/offload_optimizer.h"
#include "trireme/tensor/device.h"
#include "trireme/tensor/module_device.h"
#include "trireme/train/build/precision_parts.h"
#include "trireme/train/gradients/gradient_families.h"

namespace trireme {
namespace {

std::optional<at::ScalarType> wire_of(const PrecisionPlan& plan) {
  if (plan.wire == plan.stored) return std::nullopt;
  return plan.wire;
}

OffloadFileOptions file_options(const OffloadSection::Aio& aio,
                                const std::optional<std::string>& folder) {
  OffloadFileOptions o;
  o.folder = folder.value();
  o.block_size = aio.block_size;
  o.queue_depth = static_cast<int>(aio.queue_depth);
  return o;
}

ShardFileOptions shard_file_options(const OffloadSection& offload) {
  ShardFileOptions o;
  o.file = file_options(offload.aio, offload.parameters.nvme_path);
  o.buffer_count = static_cast<int>(offload.parameters.buffer_count);
  o.buffer_elements = offload.parameters.buffer_size;
  o.in_memory_elements = offload.parameters.max_in_cpu;
  return o;
}

FullyShardedOptions fully_sharded_options(const Config& c, const PrecisionPlan& plan,
                                          const ModelStages& stages, bool pipeline) {
  const auto zero = c.section<ZeroSection>();
  const auto training = c.section<TrainingSection>();
  const auto offload = c.section<OffloadSection>();
  FullyShardedOptions o;
  o.prefetch_elements = zero.prefetch_bucket_size.value();
  o.max_live_elements = zero.max_live_parameters.value();
  o.persistence_threshold = zero.param_persistence_threshold.value();
  o.find_unused_parameters = training.find_unused_parameters;
  o.op = ReduceOp::sum;
  o.tree = training.reproducible;
  o.wire = wire_of(plan);
  o.automatic = false;
  o.whole_for_step = pipeline;
  o.stages = stages;
  if (offload.parameters.on_disk()) o.file = shard_file_options(offload);
  return o;
}

class ShardedCompute final : public Compute {
 public:
  ShardedCompute(std::unique_ptr<Compute> inner, FullySharded& sharded)
      : inner_(std::move(inner)), sharded_(sharded) {}
  std::vector<at::Tensor> forward_list(const std::vector<at::Tensor>& inputs) override {
    return sharded_.run(
        [this](const std::vector<at::Tensor>& entered) { return inner_->forward_list(entered); },
        inputs);
  }

 private:
  std::unique_ptr<Compute> inner_;
  FullySharded& sharded_;
};

}  // namespace

ZeroSetup set_up_zero(const Config& c, const DeviceMesh& mesh, const PrecisionPlan& precision,
                      const ModelStages& stages) {
  const GradientFamily dense = dense_family(mesh.shape());
  ZeroSetup zero{static_cast<ZeroStage>(c.section<ZeroSection>().stage),
                 group_over(mesh, dense.data), stages, nullptr};
  if (zero.stage == ZeroStage::none) return zero;
  zero.groups = shard_groups_of(mesh, dense);
  check<UsageError>(
      zero.stage == ZeroStage::parameters || !c.section<ZeroSection>().share_weights ||
          zero.groups.world.backend() == "local",
      "{}: zero_optimization.share_weights is for ranks of one host, and the {} backend is not: "
      "turn it off",
      c.origin("zero_optimization.share_weights"), zero.groups.world.backend());
  if (zero.stage == ZeroStage::parameters)
    zero.sharded = std::make_unique<FullySharded>(
        zero.groups, fully_sharded_options(c, precision, stages, mesh.size("pp") > 1));
  return zero;
}

std::shared_ptr<Model> made_sharded(
    ZeroSetup& zero, const PrecisionPlan& precision, at::Device device,
    const std::function<std::shared_ptr<Model>(const UnitMade&)>& make) {
  if (!zero.sharded) {
    auto model = make({});
    move_module(*model, device);
    return model;
  }
  std::vector<FullySharded::Unit*> units;
  auto model = make([&](int64_t, const std::string& path, torch::nn::Module& module) {
    move_module(module, device);
    if (precision.stored != at::kFloat) cast_parameters(module, precision.stored);
    units.push_back(&zero.sharded->unit(path, module));
  });
  move_module(*model, device);
  if (precision.stored != at::kFloat) cast_parameters(*model, precision.stored);
  zero.sharded->root(*model);
  model->set_unit_runner(
      [units](int64_t unit, const UnitCompute& compute, const std::vector<at::Tensor>& inputs) {
        return units[static_cast<size_t>(unit)]->run(compute, inputs);
      });
  return model;
}

std::unique_ptr<Gradients> gradients_for(ZeroSetup& zero, const Config& c,
                                         const PrecisionPlan& precision, NamedTensors parameters,
                                         const NamedTensors& buffers, CommHook hook,
                                         std::shared_ptr<BucketTuning> tuning, bool clips_own) {
  const auto training = c.section<TrainingSection>();
  const auto section = c.section<ZeroSection>();
  const auto bucket_bytes = static_cast<size_t>(c.section<CommSection>().bucket_mb * 1048576);
  switch (zero.stage) {
    case ZeroStage::none:
      return whole_gradients(std::move(parameters), buffers, zero.groups.world,
                             {bucket_bytes, training.reproducible, training.find_unused_parameters,
                              std::move(hook), clips_own, std::move(tuning)});
    case ZeroStage::parameters:
      return fully_sharded_gradients(std::move(parameters), std::move(zero.sharded),
                                     zero.stages.count);
    default: {
      ShardedGradientOptions o{zero.stage,
                               bucket_bytes,
                               training.reproducible,
                               training.find_unused_parameters,
                               wire_of(precision),
                               section.share_weights,
                               zero.stages};
      if (section.reduce_bucket_size)
        o.bucket_bytes =
            static_cast<size_t>(*section.reduce_bucket_size) * at::elementSize(precision.stored);
      return sharded_gradients(std::move(parameters), buffers, zero.groups, o);
    }
  }
}

std::unique_ptr<Compute> sharded_compute(std::unique_ptr<Compute> inner, FullySharded& sharded) {
  return std::make_unique<ShardedCompute>(std::move(inner), sharded);
}

namespace {

std::unique_ptr<Optimizer> on_this_cpu(const Config& c, const ZeroSetup& zero,
                                       std::shared_ptr<ParameterPager> pager, NamedTensors owned,
                                       const MakeOptimizer& make) {
  const auto offload = c.section<OffloadSection>();
  if (!offload.optimizer.on_disk())
    return pager ? paged_optimizer(std::move(owned), make, pager) : make(std::move(owned));
  const auto parallelism = c.section<ParallelismSection>();
  const std::string fault = fault_of_file_states(
      c, zero.groups.world.size() * static_cast<int>(parallelism.tp * parallelism.pp));
  check<UsageError>(fault.empty(), "{}", fault);
  OffloadOptions o;
  o.file = file_options(offload.aio, offload.optimizer.nvme_path);
  o.parameters = std::move(pager);
  o.buffer_count = static_cast<int>(offload.optimizer.buffer_count);
  o.pipeline_read = offload.optimizer.pipeline_read;
  o.pipeline_write = offload.optimizer.pipeline_write;
  // DeepSpeed counts elements; this is the size of two float32 moments.
  o.sub_group_bytes = offload.sub_group_size * 8;
  return offload_optimizer(std::move(owned), make, o);
}

}  // namespace

std::unique_ptr<Optimizer> offloaded(const Config& c, const ZeroSetup& zero,
                                     const PrecisionPlan& precision, at::Device device,
                                     Gradients& gradients, const MakeOptimizer& make) {
  auto pager = gradients.sharded() ? gradients.sharded()->pager() : nullptr;
  const auto offload = c.section<OffloadSection>();
  if (device.is_cpu() || offload.optimizer.device == "none" ||
      !c.applies("zero_optimization.offload_optimizer.device"))
    return on_this_cpu(c, zero, std::move(pager), gradients.owned(), [&](NamedTensors owned) {
      return optimizer_for(precision, std::move(owned), make);
    });
  check<UsageError>(precision.stored == at::kFloat || precision.masters,
                    "{}: {} steps on the half-precision weights themselves, and offload_optimizer "
                    "keeps float32 masters of a device's: remove one of the two",
                    c.origin("zero_optimization.offload_optimizer.device"), precision.asked);
  return host_optimizer(gradients.owned(), [&](NamedTensors in_host_memory) {
    return on_this_cpu(c, zero, nullptr, std::move(in_host_memory), make);
  });
}

std::string layout_of(const ZeroSetup& zero) {
  if (zero.stage == ZeroStage::none) return "replicated";
  return fmt::format("zero stage {}, dp_shard {}, dp_replicate {}", static_cast<int>(zero.stage),
                     zero.groups.shards.size(),
                     zero.groups.replicas ? zero.groups.replicas.size() : 1);
}

std::string describe(const ZeroSetup& zero, const Config& c) {
  if (zero.stage == ZeroStage::none) return "";
  std::string text =
      fmt::format("ZeRO stage {} over {} rank{}", static_cast<int>(zero.stage),
                  zero.groups.shards.size(), zero.groups.shards.size() == 1 ? "" : "s");
  if (zero.groups.replicas) text += fmt::format(" × {} replicas", zero.groups.replicas.size());
  if (zero.stage != ZeroStage::parameters && c.section<ZeroSection>().share_weights)
    text += ", one copy of the weights";
  const auto offload = c.section<OffloadSection>();
  if (offload.optimizer.on_disk())
    text += fmt::format(", optimizer state in {}", offload.optimizer.nvme_path.value());
  if (zero.stage == ZeroStage::parameters && offload.parameters.on_disk())
    text += fmt::format(", parameters in {}", offload.parameters.nvme_path.value());
  return text;
}

}  // namespace trireme
