// SPDX-License-Identifier: Apache-2.0
// DeepSpeed's section zero_optimization. What its keys mean together: zero_rules.cc.
#include <string>

#include "trireme/config/key_sections.h"

namespace trireme::detail {
namespace {

constexpr const char* kSharded = "zero_optimization.stage=1,2,3";
constexpr const char* kFlat = "zero_optimization.stage=1,2";
constexpr const char* kUnits = "zero_optimization.stage=3";
constexpr double kElements = 0x1p53;  // 1e14 is what people write for "all of them"

KeyInfo zero(const char* name, KeyType type, const char* value, const char* when,
             const char* help) {
  return {.path = std::string("zero_optimization.") + name,
          .type = type,
          .default_json = value,
          .when = when,
          .idle = true,
          .help = help,
          .deepspeed = true};
}

KeyInfo elements(const char* name, const char* value, const char* when, const char* help) {
  KeyInfo key = zero(name, KeyType::integer, value, when, help);
  key.min = 0;
  key.max = kElements;
  return key;
}

KeyInfo also(const char* name, KeyType type, const char* of) {
  return {.path = std::string("zero_optimization.") + name,
          .type = type,
          .deepspeed = true,
          .alias_of = of};
}

}  // namespace

std::vector<KeyInfo> zero_keys() {
  std::vector<KeyInfo> keys = {
      {.path = "zero_optimization.stage",
       .type = KeyType::integer,
       .default_json = "0",
       .min = 0,
       .max = 3,
       .help = "what ranks share out: 1: optimizer state; 2: and gradients; 3: and parameters "
               "(true in place of the section is 1)",
       .deepspeed = true},
      {.path = "zero_optimization.share_weights",
       .type = KeyType::boolean,
       .default_json = "false",
       .when = kFlat,
       .help = "ranks of one host keep one copy of the weights in shared memory, in which each "
               "updates its shard"},
      elements("reduce_bucket_size", "", kFlat,
               "elements of a bucket of gradients; without it comm.bucket_mb (DeepSpeed: 5e8, one "
               "bucket of 2 GB)"),
      elements("stage3_prefetch_bucket_size", "50000000", kUnits,
               "elements that are gathered ahead of the unit that computes; 0: none"),
      elements("stage3_param_persistence_threshold", "100000", kUnits,
               "parameters with fewer elements stay whole on every rank"),
      elements("stage3_max_live_parameters", "1000000000", kUnits,
               "elements of units that may be whole at once"),
      {.path = "zero_optimization.zero_hpz_partition_size",
       .type = KeyType::integer,
       .default_json = "1",
       .min = 1,
       .max = kWide,
       .when = kUnits,
       .idle = true,
       .help =
           "ranks of a host that share parameters out between them: parallelism.dp_shard; 1: all "
           "ranks do",
       .deepspeed = true},
      {.path = "zero_optimization.mics_shard_size",
       .type = KeyType::integer,
       .default_json = "-1",
       .min = -1,
       .max = kWide,
       .when = kUnits,
       .idle = true,
       .help = "the same as zero_hpz_partition_size; -1: all ranks",
       .deepspeed = true},

      also("prefetch_bucket_size", KeyType::integer,
           "zero_optimization.stage3_prefetch_bucket_size"),
      also("param_persistence_threshold", KeyType::integer,
           "zero_optimization.stage3_param_persistence_threshold"),
      also("max_live_parameters", KeyType::integer, "zero_optimization.stage3_max_live_parameters"),
      also("ignore_unused_parameters", KeyType::boolean, "training.find_unused_parameters"),
  };
  struct Row {
    const char* names;
    const char* why;
  };
  for (const Row& row : {
           Row{"contiguous_gradients", "gradients always lie in contiguous buckets and shards"},
           Row{"reduce_scatter", "a gradient's sum always goes to its owner alone; the same sums"},
           Row{"overlap_comm", "communication always goes on beside backward; the same sums"},
           Row{"use_multi_rank_bucket_allreduce allgather_partitions",
               "chooses between ways to the same sums and weights"},
           Row{"allgather_bucket_size",
               "bounds the buffer in which weights are gathered; ours are gathered in place"},
           Row{"load_from_fp32_weights",
               "a checkpoint's float32 weights are always the ones loaded"},
           Row{"elastic_checkpoint", "is about DeepSpeed's checkpoint format"},
           Row{"legacy_stage1", "chooses DeepSpeed's older code for the same stage"},
           Row{"round_robin_gradients",
               "spreads copies to the host over ranks; gradients are in host memory already"},
           Row{"stage3_model_persistence_threshold model_persistence_threshold",
               "bounds what persists; stage3_param_persistence_threshold alone decides here"},
           Row{"stage3_max_reuse_distance max_reuse_distance",
               "a unit is released after its forward and after its backward; "
               "stage3_max_live_parameters bounds what is whole"},
           Row{"stage3_gather_16bit_weights_on_model_save gather_16bit_weights_on_model_save "
               "stage3_gather_fp16_weights_on_model_save",
               "each rank writes its slices of the weights into the checkpoint; nothing is "
               "gathered "
               "to be saved"},
           Row{"stage3_module_granularity_threshold module_granularity_threshold",
               "the model says what its units are"},
           Row{"stage3_use_all_reduce_for_fetch_params use_all_reduce_for_fetch_params "
               "stage3_allgather_sequential allgather_sequential",
               "a unit is gathered in one call; the same weights"},
           Row{"leaf_module.*", "the model says what its units are"},
           Row{"mics_hierarchical_params_gather",
               "ranks of one host read each other's shards in shared memory already"},
           Row{"memory_efficient_linear override_module_apply",
               "replaces Python functions; there are none here"},
           Row{"stage3_partition_stream_chunk_size partition_stream_chunk_size",
               "parameters are created sharded, one unit after the other"},
           Row{"pipeline_loading_checkpoint", "is about loading DeepSpeed's checkpoint format"},
           Row{"log_trace_cache_warnings enable_sanity_checks",
               "is about DeepSpeed's own log and checks"},
           Row{"save_muon_momentum_buffer_in_memory",
               "is read by Muon, which is not in this version"},
           Row{"zeropp_loco_param.*", "is read with zero_quantized_gradients, which is refused"},
       })
    for (const auto& name : split_words(row.names))
      keys.push_back({.path = "zero_optimization." + name,
                      .deepspeed = true,
                      .status = KeyStatus::without_effect,
                      .why = row.why});
  for (const char* name : {"zero_quantized_weights", "zero_quantized_nontrainable_weights",
                           "zero_quantized_gradients"})
    keys.push_back({.path = std::string("zero_optimization.") + name,
                    .type = KeyType::boolean,
                    .deepspeed = true,
                    .status = KeyStatus::refused,
                    .why = "rounding what travels changes what is learned",
                    .harmless = "false"});
  keys.push_back({.path = "zero_optimization.zenflow.*",
                  .deepspeed = true,
                  .status = KeyStatus::refused,
                  .why = "updating a part of the weights later changes what is learned"});
  return keys;
}

}  // namespace trireme::detail
