// SPDX-License-Identifier: Apache-2.0
// Keys that a ds_config.json may hold but that are not implemented. Those that only print, time or
// tune are accepted without effect, because they change no weight. Those that would change the
// training are refused.
#include "trireme/config/sections/built_in.h"

namespace trireme {
namespace {

/// Several keys of one section with the same reason. "*" stands for everything below.
struct Family {
  const char* section;
  const char* names;
  const char* why;
};

/// Refused unless the value is `harmless`.
struct Refusal {
  const char* path;
  KeyType type;
  const char* harmless;  // "" = no value is harmless
  const char* why;
};

constexpr const char* kDisabled = "is read only when its section is enabled";

constexpr Family kWithoutEffect[] = {
    {"", "wall_clock_breakdown memory_breakdown dump_state",
     "prints DeepSpeed's own timings and state; metrics.jsonl has ours"},
    {"", "log_level", "the environment variable TRIREME_LOG_LEVEL sets it"},
    {"", "managed_gradient_accumulation", "the trainer always manages accumulation"},
    {"", "prescale_gradients gradient_predivide_factor",
     "divides before the sum to avoid overflow in float16; here losses are divided before "
     "backward"},
    {"", "sparse_gradients",
     "gradients of embeddings are reduced as dense tensors, with the same sums"},
    {"", "disable_allgather",
     "chooses between an all-gather and broadcasts; the weights are the same"},
    {"", "zero_allow_untested_optimizer",
     "ZeRO supports every optimizer in the table except Adafactor, which is refused by name"},
    {"", "zero_force_ds_cpu_optimizer",
     "chooses DeepSpeed's kernel for the CPU, where ours always runs with offload_optimizer"},
    {"", "seq_parallel_communication_data_type",
     "belongs to sequence_parallel_size, which is refused above 1"},
    {"", "use_data_before_expert_parallelism", "there is no expert parallelism to order"},
    {"", "graph_harvesting", "captures CUDA graphs, which does not change results"},
    {"", "vocabulary_size", "DeepSpeed only warns about its alignment; model.vocab sets the size"},
    {"optimizer", "legacy_fusion",
     "chooses between DeepSpeed's kernels; our optimizers are always fused"},
    {"optimizer.params", "torch_adam fused foreach capturable",
     "chooses between implementations of the same step; ours is always fused"},
    {"optimizer.params", "max_grad_norm",
     "is DeepSpeed's older name for fp16; gradient_clipping sets the limit"},
    {"scheduler.params", "last_batch_iteration verbose",
     "a resumed run continues its schedule by itself"},
    {"scheduler.params", "cycle_min_mom cycle_max_mom decay_mom_rate",
     "is read only with cycle_momentum, which must be false"},
    {"fp16", "auto_cast", "inputs are always converted to the model's type"},
    {"fp16", "fp16_opt_level opt_level", "is Apex's; amp.opt_level sets it"},
    {"bf16", "immediate_grad_update", "gradients are always where the optimizer reads them"},
    {"bf16", "check_grad_overflow", "a gradient that is not finite always ends a bfloat16 run"},
    {"bfloat16", "immediate_grad_update", "gradients are always where the optimizer reads them"},
    {"bfloat16", "check_grad_overflow", "a gradient that is not finite always ends a bfloat16 run"},
    {"amp", "verbosity", "changes what Apex prints"},
    {"amp", "num_losses", "a step has one loss"},
    {"activation_checkpointing", "partition_activations",
     "splits saved inputs over model-parallel ranks; here parallelism.sequence_parallel does"},
    {"activation_checkpointing", "cpu_checkpointing",
     "moves saved inputs to the host's memory, with the same result; training.recompute_every "
     "saves "
     "fewer"},
    {"activation_checkpointing", "contiguous_memory_optimization",
     "copies saved inputs into one buffer to avoid fragmentation, which does not change results"},
    {"activation_checkpointing", "number_checkpoints",
     "sizes the buffer of contiguous_memory_optimization; training.recompute_every chooses blocks"},
    {"activation_checkpointing", "synchronize_checkpoint_boundary",
     "waits for the GPU at each boundary, which does not change results"},
    {"activation_checkpointing", "profile",
     "prints DeepSpeed's own timings; metrics.jsonl has ours"},
    {"zero_optimization", "contiguous_gradients",
     "gradients are always in contiguous buckets and shards"},
    {"zero_optimization", "reduce_scatter",
     "a gradient's sum always goes only to its owner, with the same value"},
    {"zero_optimization", "overlap_comm",
     "communication always overlaps backward, with the same sums"},
    {"zero_optimization", "use_multi_rank_bucket_allreduce allgather_partitions",
     "chooses between ways to the same sums and weights"},
    {"zero_optimization", "allgather_bucket_size",
     "limits the buffer in which weights are gathered; here they are gathered in place"},
    {"zero_optimization", "load_from_fp32_weights",
     "a checkpoint's float32 weights are always the ones loaded"},
    {"zero_optimization", "elastic_checkpoint", "is about DeepSpeed's checkpoint format"},
    {"zero_optimization", "legacy_stage1", "chooses DeepSpeed's older code for the same stage"},
    {"zero_optimization", "round_robin_gradients",
     "spreads copies to the host over ranks; gradients are in host memory already"},
    {"zero_optimization", "stage3_model_persistence_threshold model_persistence_threshold",
     "limits what persists; here only stage3_param_persistence_threshold decides"},
    {"zero_optimization", "stage3_max_reuse_distance max_reuse_distance",
     "a unit is released after its forward and after its backward; stage3_max_live_parameters "
     "limits what is whole"},
    {"zero_optimization",
     "stage3_gather_16bit_weights_on_model_save gather_16bit_weights_on_model_save "
     "stage3_gather_fp16_weights_on_model_save",
     "each rank writes its slices of the weights into the checkpoint; nothing needs to be "
     "gathered"},
    {"zero_optimization",
     "stage3_module_granularity_threshold module_granularity_threshold leaf_module.*",
     "the model defines its units"},
    {"zero_optimization",
     "stage3_use_all_reduce_for_fetch_params use_all_reduce_for_fetch_params "
     "stage3_allgather_sequential allgather_sequential",
     "a unit is gathered in one call; the same weights"},
    {"zero_optimization", "mics_hierarchical_params_gather",
     "ranks of one host read each other's shards in shared memory already"},
    {"zero_optimization", "memory_efficient_linear override_module_apply",
     "replaces Python functions; there are none here"},
    {"zero_optimization", "stage3_partition_stream_chunk_size partition_stream_chunk_size",
     "parameters are created sharded, one unit after the other"},
    {"zero_optimization", "pipeline_loading_checkpoint",
     "is about loading DeepSpeed's checkpoint format"},
    {"zero_optimization", "log_trace_cache_warnings enable_sanity_checks",
     "is about DeepSpeed's own log and checks"},
    {"zero_optimization", "save_muon_momentum_buffer_in_memory",
     "is read by Muon, which is not in this version"},
    {"zero_optimization", "zeropp_loco_param.*",
     "is read with zero_quantized_gradients, which is refused"},
    {"zero_optimization", "cpu_offload_use_pin_memory",
     "copies between a device and its host always go through pinned memory"},
    {"zero_optimization.offload_optimizer", "pin_memory",
     "copies between a device and its host always go through pinned memory"},
    {"zero_optimization.offload_param", "pin_memory",
     "copies between a device and its host always go through pinned memory"},
    {"zero_optimization.offload_optimizer", "fast_init",
     "a new state file is sparse and reads as zeros, so initialisation is always fast"},
    {"zero_optimization.offload_optimizer", "ratio",
     "divides the update between a GPU and its host; here the whole of it is in the host"},
    {"zero_optimization.offload_optimizer", "super_offload",
     "schedules updates between a GPU and its host; here all of them are in the host"},
    {"zero_optimization.offload_optimizer", "cpuadam_cores_perc",
     "the launcher divides cores among ranks (OMP_NUM_THREADS)"},
    {"aio", "intra_op_parallelism thread_count",
     "sets threads; here one thread submits to the kernel, with queue_depth requests in flight"},
    {"aio", "single_submit", "chooses how requests are submitted, which does not change the bytes"},
    {"aio", "overlap_events", "requests are always submitted before older ones complete"},
    {"aio", "use_gds", "reads into a GPU's memory; here files are read into the host's"},
    {"elasticity",
     "max_train_batch_size micro_batch_sizes min_gpus max_gpus min_time prefer_larger_batch "
     "ignore_non_elastic_batch_info num_gpus_per_node model_parallel_size version",
     kDisabled},
    {"autotuning", "*", kDisabled},
    {"curriculum_learning", "*", kDisabled},
    {"data_efficiency", "*",
     "belongs to parts of data_efficiency that are off, or is replaced by training.seed and "
     "data.workers"},
    {"progressive_layer_drop", "theta gamma", kDisabled},
    {"hybrid_engine", "*", kDisabled},
    {"pipeline", "partition",
     "PipelineModule chooses there; here parallelism.partition_method and parallelism.stages do"},
    {"pipeline", "seed_layers",
     "initial values are drawn by the names of parameters, and do not depend on stages"},
    {"pipeline", "activation_checkpoint_interval",
     "recomputes blocks, with the same result; training.recompute_every chooses them"},
    {"pipeline", "pipe_partitioned grad_partitioned",
     "divides what stages exchange over model-parallel ranks, with the same result; "
     "parallelism.sequence_parallel does so here"},
    {"tensor_parallel", "dtype", "fp16.enabled, bf16.enabled and amp choose the parameters' type"},
    {"tensor_parallel", "tp_overlap_comm", "changes when parts communicate, with the same sums"},
    {"tensor_parallel",
     "injection_policy_tuple partition_config preset_model keep_module_on_host "
     "replace_with_kernel_inject kernel_inject",
     "says how layers of a Python module are divided; the built-in models know their parts"},
    {"checkpoint",
     "tag_validation load_universal use_node_local_storage checkpoint_serialization "
     "parallel_write.* "
     "writer.*",
     "is about DeepSpeed's checkpoint format; ours always checks its tags and publishes "
     "atomically"},
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
    {"fp16.fp16_master_weights_and_grads", KeyType::boolean, "false",
     "master weights and optimizer state are float32 here: 16 bytes a parameter with AdamW"},
    {"bf16.bf16_master_weights_and_grads", KeyType::boolean, "false",
     "master weights and optimizer state are float32 here: 16 bytes a parameter with AdamW"},
    {"bf16.bf16_optimizer_states", KeyType::boolean, "false",
     "master weights and optimizer state are float32 here: 16 bytes a parameter with AdamW"},
    {"bfloat16.bf16_master_weights_and_grads", KeyType::boolean, "false",
     "master weights and optimizer state are float32 here: 16 bytes a parameter with AdamW"},
    {"bfloat16.bf16_optimizer_states", KeyType::boolean, "false",
     "master weights and optimizer state are float32 here: 16 bytes a parameter with AdamW"},
    {"torch_autocast.lower_precision_safe_modules", KeyType::any, "",
     "LibTorch's autocast chooses by operator, not by module"},
    {"amp.loss_scale", KeyType::text, "\"dynamic\"",
     "the preset sets it; fp16.enabled takes fp16.loss_scale"},
    {"amp.master_weights", KeyType::any, "", "the preset sets it: amp.opt_level O2 or O3"},
    {"amp.keep_batchnorm_fp32", KeyType::any, "",
     "norms are computed as LibTorch does for the model's type"},
    {"amp.cast_model_type", KeyType::any, "", "set amp.dtype to fp16 or bf16"},
    {"amp.min_loss_scale", KeyType::any, "",
     "the preset sets it; fp16.enabled takes fp16.min_loss_scale"},
    {"amp.max_loss_scale", KeyType::any, "", "the scale grows as far as float32 goes"},
    {"data_types.param_dtype", KeyType::text, "\"fp32\"",
     "fp16.enabled, bf16.enabled and amp choose the parameters' type; buffers are float32"},
    {"data_types.buffer_dtype", KeyType::text, "\"fp32\"",
     "fp16.enabled, bf16.enabled and amp choose the parameters' type; buffers are float32"},
    {"data_efficiency.data_routing.enabled", KeyType::boolean, "false",
     "a curriculum and dropped tokens change what is learned"},
    {"data_efficiency.data_sampling.curriculum_learning.enabled", KeyType::boolean, "false",
     "a curriculum and dropped tokens change what is learned"},
    {"zero_optimization.zero_quantized_weights", KeyType::boolean, "false",
     "rounding what is sent changes what is learned"},
    {"zero_optimization.zero_quantized_nontrainable_weights", KeyType::boolean, "false",
     "rounding what is sent changes what is learned"},
    {"zero_optimization.zero_quantized_gradients", KeyType::boolean, "false",
     "rounding what is sent changes what is learned"},
    {"zero_optimization.zenflow.*", KeyType::any, "",
     "delaying the update of some weights changes what is learned"},
    {"sequence_parallel_size", KeyType::integer, "1",
     "parallelism.cp is the number of ranks that divide a sequence, with parallelism.cp_method "
     "all_to_all in DeepSpeed's way"},
    {"tensor_parallel.tensor_parallel.tp_size", KeyType::integer, "1",
     "parallelism.tp, or tensor_parallel.autotp_size, is the number of ranks"},
    {"tensor_parallel.tensor_parallel.*", KeyType::any, "",
     "layers are divided as evenly as they go, over ranks that parallelism.tp counts"},
    {"tensor_parallel.tp.tp_size", KeyType::integer, "1",
     "parallelism.tp, or tensor_parallel.autotp_size, is the number of ranks"},
    {"tensor_parallel.tp.*", KeyType::any, "",
     "layers are divided as evenly as they go, over ranks that parallelism.tp counts"},
    {"expert_parallel.*", KeyType::any, "", "expert parallelism is not in this version"},
    {"pipeline.stages", KeyType::integer, "1",
     "DeepSpeed takes the number from PipelineModule and not from here; parallelism.pp is it, and "
     "parallelism.stages the blocks of each"},
    {"elasticity.enabled", KeyType::boolean, "false",
     "elastic batches are not in this version; give the batch sizes"},
    {"autotuning.enabled", KeyType::boolean, "false",
     "DeepSpeed performs tuning runs; give the values that it found"},
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
     "this version does not have stairs in a cycle"},
};

void add(std::vector<KeyInfo>* keys, const Family& family, KeyStatus status) {
  std::string prefix = *family.section ? std::string(family.section) + "." : "";
  for (const auto& name : split_words(family.names))
    keys->push_back(
        {.path = prefix + name, .deepspeed = true, .status = status, .why = family.why});
}

}  // namespace

std::vector<KeyInfo> deepspeed_keys() {
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

}  // namespace trireme
