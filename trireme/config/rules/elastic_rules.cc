// SPDX-License-Identifier: Apache-2.0
// Rules for runs whose ranks go on in their processes when one is lost: what no rank that is left
// holds, or what it may have changed in a step that was broken off, cannot go on.
#include <fmt/core.h>

#include "trireme/config/rules/rules.h"

namespace trireme {
namespace {

struct Refused {
  const char* path;
  const char* fine;  // the values, as JSON, with which it is fine
  const char* why;
};

// From one group to the next a rank keeps a copy of its state in memory.
constexpr const char* kOnDisk = "what is kept on disk for want of memory has no room in memory";

constexpr Refused kRefused[] = {
    {"parallelism.tp", "1", "each rank holds a part of the layers, which is lost with it"},
    {"parallelism.pp", "1", "each rank holds a part of the layers, which is lost with it"},
    {"parallelism.cp", "1", "the positions of a lost rank are missing from every sample"},
    {"zero_optimization.share_weights", "false",
     "a rank that is lost may have been writing to the weights of all"},
    {"zero_optimization.offload_optimizer.device", R"("none" "cpu")", kOnDisk},
    {"zero_optimization.offload_param.device", R"("none" "cpu")", kOnDisk},
    {"comm.backend", R"("local" "gloo" "hybrid")", "no other backend makes groups anew"},
    {"comm.across", R"("gloo")", "no other backend makes groups anew"},
    {"comm.strategy", "\"all_reduce\"", "ranks hold states that differ"},
    {"compression.type", "\"none\"", "ranks hold states that differ"},
    {"averaging.type", "\"none\"", "ranks hold states that differ"},
    {"balance.mode", "\"none\"", "shares are those of a fixed number of ranks"},
    {"comm.tune_buckets", "false", "trials are those of a fixed number of ranks"},
    {"monitor.gradient_noise_scale", "false", "the estimate is that of a fixed number of ranks"},
    {"data_efficiency.data_sampling.dynamic_batching.enabled", "false",
     "a step's tokens are dealt to a fixed number of ranks"},
};

bool is_among(const std::string& value, const char* values) {
  return (" " + std::string(values) + " ").find(" " + value + " ") != std::string::npos;
}

}  // namespace

void elastic_rules(const Config& c, Findings& f) {
  const char *mode = "elastic.mode", *batch = "elastic.batch";
  if (f.broken(mode) || c.get_string(mode) != "in_process") return;
  for (const Refused& refused : kRefused) {
    const std::string path = refused.path;
    if (f.broken(path) || !c.has(path) || !c.applies(path)) continue;
    const std::string value = *c.value_text(path);
    if (is_among(value, refused.fine)) continue;
    f.complain(mode,
               fmt::format("is \"in_process\", and with {} {} ({}) {}: remove one of them. "
                           "With elastic.mode restart all ranks start again from a checkpoint",
                           path, value, c.origin(path), refused.why));
    return;
  }
  const char *shard = "parallelism.dp_shard", *replicate = "parallelism.dp_replicate";
  if (!f.broken(shard) && !f.broken(replicate) && c.get_int(shard) > 0 && c.get_int(replicate) > 0)
    f.complain(mode, fmt::format("is \"in_process\", and {} {} × {} {} fix the number of ranks, "
                                 "which changes: remove one of the two",
                                 replicate, c.get_int(replicate), shard, c.get_int(shard)));
  const char* reproducible = "training.reproducible";
  if (!f.broken(reproducible) && c.get_bool(reproducible) && !f.broken(batch) &&
      c.get_string(batch) != "keep")
    f.complain(batch,
               fmt::format("changes a step's samples with the ranks, and {} {} ({}) needs "
                           "the same steps on any number of ranks: leave it at keep",
                           reproducible, *c.value_text(reproducible), c.origin(reproducible)));
}

}  // namespace trireme
