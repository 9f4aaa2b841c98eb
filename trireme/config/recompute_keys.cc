// SPDX-License-Identifier: Apache-2.0
// The keys of recomputation. DeepSpeed's section is in activation_checkpointing_keys.cc.
#include "trireme/config/config_loader.h"
#include "trireme/config/keys.h"

namespace trireme {
namespace detail {

std::vector<KeyInfo> recompute_keys() {
  return {
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
}

}  // namespace detail

void ConfigLoader::check_recompute_together() {
  const char *every = "training.recompute_every", *memory = "training.activation_memory_mb";
  if (broken(every) || broken(memory) || !config_.applies(every)) return;
  if (config_.get_int(every) > 0 && config_.get_double(memory) > 0)
    complain(memory, "and training.recompute_every both choose the blocks: give one of them");
}

}  // namespace trireme
