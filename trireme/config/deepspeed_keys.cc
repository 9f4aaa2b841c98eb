// SPDX-License-Identifier: Apache-2.0
// Keys that a ds_config.json may hold and that do not run here. Accepted are those whose absence
// changes no weight: what they would have printed, timed or tuned. Whatever would change the
// training is refused.
#include "trireme/config/keys.h"

namespace trireme::detail {
namespace {

/// Many names of one section with one reason. "*" stands for everything below.
struct Family {
  const char* section;
  const char* names;
  const char* why;
};

/// Refused unless the value is `harmless`.
struct Refusal {
  const char* path;
  KeyType type;
  const char* harmless;  // "" = no value is
  const char* why;
};

constexpr const char* kDisabled = "is read only when its section is enabled";

constexpr Family kWithoutEffect[] = {
    {"", "wall_clock_breakdown memory_breakdown dump_state",
     "prints DeepSpeed's own timings and state; metrics.jsonl has ours"},
    {"", "log_level", "the environment variable TRIREME_LOG_LEVEL sets it"},
    {"", "managed_gradient_accumulation", "the trainer always manages accumulation"},
    {"", "prescale_gradients gradient_predivide_factor",
     "moves the division before the sum against overflow in float16; losses are divided before "
     "backward there"},
    {"", "sparse_gradients", "gradients of embeddings are reduced dense: the same sums"},
    {"", "disable_allgather",
     "chooses between an all-gather and broadcasts; the weights are the same"},
    {"", "zero_allow_untested_optimizer",
     "ZeRO takes every optimizer of the table but Adafactor, which it refuses by name"},
    {"", "zero_force_ds_cpu_optimizer",
     "chooses DeepSpeed's kernel for the CPU; ours is the one for the CPU"},
    {"", "seq_parallel_communication_data_type",
     "there is no sequence parallelism to communicate for"},
    {"", "use_data_before_expert_parallelism", "there is no expert parallelism to order"},
    {"", "graph_harvesting", "captures CUDA graphs; the same results without"},
    {"", "vocabulary_size", "DeepSpeed only warns about its alignment; model.vocab sets the size"},
    {"optimizer", "legacy_fusion",
     "chooses between DeepSpeed's kernels; our optimizers are always fused"},
    {"optimizer.params", "torch_adam fused foreach capturable",
     "chooses between implementations of the same step; ours is always fused"},
    {"optimizer.params", "max_grad_norm",
     "is DeepSpeed's older name with fp16; gradient_clipping clips"},
    {"scheduler.params", "last_batch_iteration verbose",
     "a resumed run continues its schedule by itself"},
    {"scheduler.params", "cycle_min_mom cycle_max_mom decay_mom_rate",
     "is read with cycle_momentum only, which must be false"},
    {"elasticity",
     "max_train_batch_size micro_batch_sizes min_gpus max_gpus min_time prefer_larger_batch "
     "ignore_non_elastic_batch_info num_gpus_per_node model_parallel_size version",
     kDisabled},
    {"autotuning", "*", kDisabled},
    {"curriculum_learning", "*", kDisabled},
    {"data_efficiency", "*",
     "is of parts of data_efficiency that are off, or that training.seed and data.workers say"},
    {"progressive_layer_drop", "theta gamma", kDisabled},
    {"hybrid_engine", "*", kDisabled},
    {"pipeline",
     "partition seed_layers activation_checkpoint_interval pipe_partitioned grad_partitioned",
     "is read by a pipeline of several stages only"},
    {"tensor_parallel",
     "dtype tp_overlap_comm injection_policy_tuple partition_config preset_model "
     "keep_module_on_host "
     "replace_with_kernel_inject",
     "is read by tensor parallelism only"},
    {"checkpoint",
     "tag_validation load_universal use_node_local_storage checkpoint_serialization "
     "parallel_write.* "
     "writer.*",
     "is about DeepSpeed's checkpoint format; ours checks its tags and publishes in one step"},
    {"nebula", "*", "is about DeepSpeed's checkpoint service"},
    {"datastates_ckpt", "*", "is about DeepSpeed's checkpoint service"},
    {"tensorboard", "enabled output_path job_name",
     "this version writes no TensorBoard events; the same figures are in metrics.jsonl"},
    {"csv_monitor", "enabled output_path job_name", "the same figures are in metrics.jsonl"},
    {"wandb", "*", "nothing is sent to a service; the figures are in metrics.jsonl"},
    {"comet", "*", "nothing is sent to a service; the figures are in metrics.jsonl"},
    {"comms_logger", "enabled verbose prof_all debug prof_ops",
     "this version prints no log of collectives; trireme bench measures them"},
    {"flops_profiler",
     "enabled recompute_fwd_factor profile_step module_depth top_modules detailed output_file",
     "this version has no FLOPs profiler"},
    {"compile", "*", "compiles Python modules; there are none here"},
    {"timers", "*", "throughput is always measured, and is in metrics.jsonl"},
};

constexpr Refusal kRefused[] = {
    {"sequence_parallel_size", KeyType::integer, "1",
     "sequence parallelism is not in this version"},
    {"tensor_parallel.autotp_size", KeyType::integer, "0",
     "tensor parallelism is not in this version"},
    {"tensor_parallel.tensor_parallel.*", KeyType::any, "",
     "tensor parallelism is not in this version"},
    {"tensor_parallel.tp.*", KeyType::any, "", "tensor parallelism is not in this version"},
    {"expert_parallel.*", KeyType::any, "", "expert parallelism is not in this version"},
    {"pipeline.stages", KeyType::integer, "1", "pipeline parallelism is not in this version"},
    {"elasticity.enabled", KeyType::boolean, "false",
     "elastic batches are not in this version; give the batch sizes"},
    {"autotuning.enabled", KeyType::boolean, "false",
     "tuning runs are DeepSpeed's; give the values it found"},
    {"curriculum_learning.enabled", KeyType::boolean, "false",
     "a curriculum changes what is learned"},
    {"progressive_layer_drop.enabled", KeyType::boolean, "false",
     "dropping layers changes what is learned"},
    {"hybrid_engine.enabled", KeyType::boolean, "false",
     "the hybrid engine is not in this version"},
    {"sparse_attention.*", KeyType::any, "",
     "attention is dense here; a sparse one is another model"},
    {"quantize_training.*", KeyType::any, "", "quantization changes what is learned"},
    {"weight_quantization.*", KeyType::any, "", "quantization changes what is learned"},
    {"compression_training.*", KeyType::any, "", "compression changes what is learned"},
};

constexpr Family kOtherParams[] = {
    {"optimizer.params",
     "cuda_aware comm_backend_name var_freeze_step "
     "var_update_scaler "
     "local_step_scaler local_step_clipper muon_lr adam_lr ns_method",
     "belongs to an optimizer that is not in this version"},
    {"scheduler.params", "cycle_first_stair_count cycle_second_stair_count",
     "stairs of a cycle are not in this version"},
};

void add(std::vector<KeyInfo>* keys, const Family& family, KeyStatus status) {
  std::string prefix = *family.section ? std::string(family.section) + "." : "";
  for (const auto& name : split_words(family.names))
    keys->push_back(
        {.path = prefix + name, .deepspeed = true, .status = status, .why = family.why});
}

}  // namespace

std::vector<KeyInfo> other_deepspeed_keys() {
  std::vector<KeyInfo> keys;
  for (const auto& row : kRefused)
    keys.push_back({.path = row.path,
                    .type = row.type,
                    .deepspeed = true,
                    .status = KeyStatus::refused,
                    .why = row.why,
                    .harmless = row.harmless});
  for (const auto& family : kOtherParams) add(&keys, family, KeyStatus::refused);
  for (const auto& family : kWithoutEffect) add(&keys, family, KeyStatus::without_effect);
  return keys;
}

}  // namespace trireme::detail
