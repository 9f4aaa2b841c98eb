// SPDX-License-Identifier: Apache-2.0
// Rules for ZeRO and offload.
#include "trireme/base/check.h"
#include "trireme/config/rules/rules.h"
#include "trireme/config/sections/comm.h"
#include "trireme/config/sections/optimizer.h"
#include "trireme/config/sections/precision.h"
#include "trireme/config/sections/training.h"
#include "trireme/config/sections/zero.h"

namespace trireme {
namespace {

constexpr const char* kStage = "zero_optimization.stage";
constexpr const char* kShare = "zero_optimization.share_weights";
constexpr const char* kMics = "zero_optimization.mics_shard_size";
constexpr const char* kHpz = "zero_optimization.zero_hpz_partition_size";
constexpr const char* kShard = "parallelism.dp_shard";

std::string at(const Config& c, const char* path) {
  return fmt::format("{} {} ({})", path, *c.value_text(path), c.origin(path));
}

}  // namespace

/// parallelism.dp_shard covers both of DeepSpeed's ways to shard inside a host.
void derive_zero(const Config& c, const Findings& f, Derived& derived) {
  if (f.broken(kStage) || f.broken(kMics) || f.broken(kHpz) || f.broken(kShard)) return;
  const auto zero = c.section<ZeroSection>();
  if (!c.is_default(kShard) || zero.stage != 3) return;
  int64_t ranks = zero.mics_shard_size;
  if (ranks < 1) ranks = zero.hpz_partition_size > 1 ? zero.hpz_partition_size : 0;
  if (ranks > 0) derived.set(kShard, Value::of(ranks));
}

void zero_rules(const Config& c, Findings& f) {
  if (f.broken(kStage)) return;
  const int64_t stage = c.get_int(kStage);
  if (!f.broken(kMics) && c.applies(kMics) && c.get_int(kMics) == 0)
    f.complain(kMics, "is 0: give the number of ranks in a set, or -1 for all");
  if (stage == 0) return;

  // All three keys set the same number.
  const char* first = nullptr;
  for (const char* path : {kShard, kMics, kHpz}) {
    if (f.broken(path) || c.is_default(path) || !c.applies(path)) continue;
    const int64_t ranks = c.get_int(path);
    if (ranks < (path == kHpz ? 2 : 1)) continue;  // the default: requests nothing
    if (!first)
      first = path;
    else if (c.get_int(first) != ranks)
      f.complain(path, fmt::format("is {}, and {} sets the same number: remove one of them", ranks,
                                   at(c, first)));
  }
  if (!f.broken("optimizer.type") && c.section<OptimizerSection>().type == "Adafactor")
    f.complain(
        kStage,
        fmt::format("is {}, and optimizer.type is \"Adafactor\" ({}), whose state is factored over "
                    "whole matrices and cannot be sharded: use stage 0, or another optimizer",
                    stage, c.origin("optimizer.type")));
  const char* noise = "monitor.gradient_noise_scale";
  if (!f.broken(noise) && c.get_bool(noise))
    f.complain(noise,
               fmt::format("compares whole gradients, which no rank has with {}: use stage 0",
                           at(c, kStage)));
  if (!f.broken("amp.enabled") && c.section<PrecisionSection>().amp.enabled)
    f.complain(
        "amp.enabled",
        fmt::format(
            "is true, and {}: Apex's presets do not support ZeRO; enable fp16 or bf16 instead",
            at(c, kStage)));
  if (stage == 3 && !f.broken("fp16.emulate") && c.section<PrecisionSection>().fp16.emulate)
    f.complain("fp16.emulate", fmt::format("is true and keeps a float32 copy of every weight, and "
                                           "{} keeps none whole: use stage 2, or bf16.enabled",
                                           at(c, kStage)));
  if (!f.broken(kShare) && c.applies(kShare) && c.get_bool(kShare) && !f.broken("comm.backend") &&
      c.section<CommSection>().backend != "local")
    f.complain(kShare, fmt::format("is true, and {} has no shared memory: use \"local\"",
                                   at(c, "comm.backend")));
}

void offload_rules(const Config& c, Findings& f) {
  if (f.broken(kStage)) return;
  for (const std::string section : {"offload_optimizer", "offload_param"}) {
    const std::string device = "zero_optimization." + section + ".device",
                      path = "zero_optimization." + section + ".nvme_path";
    if (f.broken(device) || !c.applies(device)) continue;
    const std::string where = c.get_string(device);
    if (where == "none") continue;
    if (section == "offload_param" && c.get_int(kStage) != 3)
      f.complain(device, fmt::format("is \"{}\", and {} keeps parameters whole on every rank: set "
                                     "the stage to 3, or remove offload_param",
                                     where, at(c, kStage)));
    else if (where == "cpu") {
      // Where training is, ranks know.
      const std::string trains_on = c.section<TrainingSection>().device;
      if (trains_on == "cpu")
        f.idle(device, "training is on the CPU: it is already in host memory");
      else if (trains_on == "auto")
        f.idle(device, "where training is on the CPU, it is already in host memory");
    } else if (!f.broken(path) && (!c.has(path) || c.get_string(path).empty()))
      f.complain(device, fmt::format("is \"nvme\" and needs {}, a folder on a fast disk", path));
  }
}

}  // namespace trireme
