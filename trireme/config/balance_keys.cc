// SPDX-License-Identifier: Apache-2.0
// The keys of balance between unequal ranks, and what they mean beside others.
#include <fmt/core.h>

#include "trireme/config/config_loader.h"
#include "trireme/config/keys.h"

namespace trireme {
namespace detail {

std::vector<KeyInfo> balance_keys() {
  const char* on = "balance.mode=throughput";
  return {
      {.path = "balance.mode",
       .type = KeyType::text,
       .default_json = "\"none\"",
       .choices = "none throughput",
       .help =
           "how a step's samples are dealt to ranks: none: as many to each; throughput: as each "
           "is fast"},
      {.path = "balance.every",
       .type = KeyType::integer,
       .default_json = "10",
       .min = 1,
       .max = 100000,
       .when = on,
       .help = "steps that are measured before shares may change"},
      {.path = "balance.hysteresis",
       .type = KeyType::number,
       .default_json = "0.05",
       .min = 0,
       .max = 0.9,
       .when = on,
       .help = "shares change when that makes the step shorter by more than this part"},
      {.path = "balance.min_samples",
       .type = KeyType::integer,
       .default_json = "1",
       .min = 1,
       .max = 1e9,
       .when = on,
       .help = "fewest samples of a rank in a step"},
      {.path = "balance.max_share",
       .type = KeyType::number,
       .default_json = "1.0",
       .min = 0,
       .max = 1,
       .when = on,
       .help = "largest part of a step's samples that one rank may get; 1: no limit"},
      {.path = "balance.max_samples",
       .type = KeyType::integers,
       .default_json = "[]",
       .min = 1,
       .max = 1e9,
       .when = on,
       .help = "memory cap: most samples of a micro-batch, one number for all ranks or one a rank; "
               "[]: train_micro_batch_size_per_gpu"},
      {.path = "balance.memory_backoff",
       .type = KeyType::boolean,
       .default_json = "true",
       .when = on,
       .help = "a rank that runs out of memory halves its micro-batch and goes on (else that ends "
               "the run)"},
  };
}

}  // namespace detail

void ConfigLoader::check_balance_together() {
  const Config& c = config_;
  const char *mode = "balance.mode", *stage = "zero_optimization.stage",
             *backoff = "balance.memory_backoff";
  if (broken(mode) || c.get_string(mode) == "none") return;
  auto at = [&](const char* path) {
    return fmt::format("{} {} ({})", path, *c.value_text(path), c.origin(path));
  };
  if (!broken("training.reproducible") && c.get_bool("training.reproducible"))
    complain(mode, fmt::format("gives ranks micro-batches of other shapes as their speed changes, "
                               "and {} is the promise that no shape does: take one of them",
                               at("training.reproducible")));
  if (broken(stage)) return;
  if (c.get_int(stage) >= 2)
    complain(mode, fmt::format("gives ranks different numbers of micro-batches, and at {} each "
                               "micro-batch is a call of all ranks: take stage 0 or 1",
                               at(stage)));
  else if (c.get_int(stage) == 1 && !broken(backoff) && c.get_bool(backoff))
    complain(backoff,
             fmt::format("begins a rank's part of a step again, and at {} gradients lie in "
                         "memory that ranks share out: set it to false, or take stage 0",
                         at(stage)));
}

}  // namespace trireme
