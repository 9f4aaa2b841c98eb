// SPDX-License-Identifier: Apache-2.0
// DeepSpeed's activation_checkpointing. The section says how its checkpoint() works, not where a
// model calls it: which blocks are computed again is training.recompute_every's to say.
#include "trireme/config/keys.h"

namespace trireme::detail {

std::vector<KeyInfo> activation_checkpointing_keys() {
  struct Row {
    const char* name;
    const char* why;
  };
  std::vector<KeyInfo> keys;
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

}  // namespace trireme::detail
