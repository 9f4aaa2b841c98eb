// SPDX-License-Identifier: Apache-2.0
// The keys of recomputation: ours, which run, and DeepSpeed's activation_checkpointing.
#include "trireme/config/config_loader.h"
#include "trireme/config/keys.h"

namespace trireme {
namespace detail {

std::vector<KeyInfo> recompute_keys() {
  std::vector<KeyInfo> keys = {
      {.path = "training.recompute_every",
       .type = KeyType::integer,
       .default_json = "0",
       .min = 0,
       .max = 10000,
       .when = "model.type=gpt",
       .help = "every k-th block drops its inner values after forward and computes them again in "
               "backward (1: all, 0: none); the same bits"},
      {.path = "training.activation_memory_mb",
       .type = KeyType::number,
       .default_json = "0.0",
       .min = 0,
       .max = 1e9,
       .when = "model.type=gpt",
       .help = "MiB for the activations of a micro-batch: the fewest blocks are recomputed with "
               "which they fit; 0: no limit"},
  };
  struct Row {
    const char* name;
    const char* why;
  };
  // DeepSpeed's section says how its checkpoint() works, not where a model calls it.
  for (const Row& row : {
           Row{"partition_activations",
               "splits kept inputs over model-parallel ranks, of which there is one"},
           Row{"cpu_checkpointing", "moves kept inputs to the CPU's memory, where they are here"},
           Row{"contiguous_memory_optimization",
               "copies kept inputs into one buffer against fragments; the same results without"},
           Row{"number_checkpoints",
               "sizes the buffer of contiguous_memory_optimization; training.recompute_every "
               "chooses blocks"},
           Row{"synchronize_checkpoint_boundary",
               "waits for the GPU at each boundary; the same results without"},
           Row{"profile", "prints DeepSpeed's own timings; metrics.jsonl has ours"},
       })
    keys.push_back({.path = std::string("activation_checkpointing.") + row.name,
                    .deepspeed = true,
                    .status = KeyStatus::without_effect,
                    .why = row.why});
  return keys;
}

}  // namespace detail

void ConfigLoader::check_recompute_together() {
  const char *every = "training.recompute_every", *memory = "training.activation_memory_mb";
  if (broken(every) || broken(memory) || !config_.applies(every)) return;
  if (config_.get_int(every) > 0 && config_.get_double(memory) > 0)
    complain(memory, "and training.recompute_every both choose the blocks: give one of them");
}

}  // namespace trireme
