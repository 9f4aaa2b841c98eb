// SPDX-License-Identifier: Apache-2.0
// Rules for compression, averaging and comm.strategy. Each changes what a rank's gradients are, so
// only one may be given, and features that need whole sums refuse them.
#include "trireme/base/check.h"
#include "trireme/config/rules/rules.h"
#include "trireme/config/sections/averaging.h"
#include "trireme/config/sections/precision.h"
#include "trireme/config/sections/training.h"
#include "trireme/config/sections/zero.h"

namespace trireme {
namespace {

/// Tuning lays out and reduces the buckets itself.
void tuning_rules(const Config& c, Findings& f, const char* strategy) {
  for (const char* path : {"comm.tune_buckets", "comm.buckets_file"}) {
    if (f.broken(path) || c.is_default(path)) continue;
    if (std::string_view(path) == "comm.tune_buckets" ? !c.get_bool(path) : !c.has(path)) continue;
    const std::string value = *c.value_text(path);
    auto refuse = [&](const char* other) {
      f.complain(
          path,
          fmt::format("is {}, and with {} {} ({}) buckets are not plain sums: remove one of them",
                      value, other, *c.value_text(other), c.origin(other)));
    };
    if (strategy)
      refuse(strategy);
    else if (!f.broken("zero_optimization.stage") && c.section<ZeroSection>().stage > 0)
      refuse("zero_optimization.stage");
    else if (!f.broken("training.reproducible") && c.section<TrainingSection>().reproducible)
      refuse("training.reproducible");
    else if (c.has("communication_data_type"))
      refuse("communication_data_type");
  }
}

}  // namespace

void slow_link_rules(const Config& c, Findings& f) {
  const auto levels = c.section<AveragingSection>();
  const auto precision = c.section<PrecisionSection>();
  const char *strategy = "comm.strategy", *compression = "compression.type",
             *averaging = "averaging.type";
  auto at = [&](const char* path) {
    return fmt::format("{} {} ({})", path, *c.value_text(path), c.origin(path));
  };
  auto on = [&](const char* path) {
    return !f.broken(path) && c.applies(path) && c.get_bool(path);
  };
  const char* first = nullptr;
  for (const char* path : {strategy, compression, averaging}) {
    if (f.broken(path)) return;
    const std::string value = c.get_string(path);
    if (value == "none" || value == "all_reduce") continue;
    if (first) {
      f.complain(
          path,
          fmt::format(
              "is \"{}\", and {} already determines how ranks are combined: remove one of them",
              value, at(first)));
      return;
    }
    first = path;
  }
  tuning_rules(c, f, first);
  if (!first) return;
  const std::string value = c.get_string(first);
  if (!f.broken("zero_optimization.stage") && c.section<ZeroSection>().stage > 0)
    f.complain(first,
               fmt::format("is \"{}\", and {} reduces gradients directly into shards: use stage 0",
                           value, at("zero_optimization.stage")));
  if (on("training.reproducible"))
    f.complain(
        "training.reproducible",
        fmt::format("is true, and with {} results depend on the number of ranks: turn one of "
                    "them off",
                    at(first)));
  if (precision.communication_data_type.value_or("fp32") != "fp32")
    f.complain("communication_data_type",
               fmt::format("is \"{}\", and {} already determines what is sent: remove one of them",
                           *precision.communication_data_type, at(first)));
  // Apex's O0 and O1 keep float32 weights and gradients.
  const std::string amp =
      on("amp.enabled") && !f.broken("amp.opt_level") ? precision.amp.opt_level : "";
  const bool half = on("fp16.enabled") || on("bf16.enabled") || amp == "O2" || amp == "O3";
  if (half && (first == averaging || value == "adasum" || value == "broadcast_parameters"))
    f.complain(
        first,
        fmt::format(
            "is \"{}\" and needs float32 weights and gradients on every rank, and {} keeps them in "
            "half precision: use torch_autocast, which computes in bfloat16 on float32 weights",
            value,
            on("fp16.enabled")   ? at("fp16.enabled")
            : on("bf16.enabled") ? at("bf16.enabled")
                                 : at("amp.enabled")));
  if (first != compression && on("monitor.gradient_noise_scale"))
    f.complain(
        "monitor.gradient_noise_scale",
        fmt::format("is true, and with {} no rank has the mean of all gradients: turn one of "
                    "them off",
                    at(first)));
  const char* balance = "balance.mode";
  if ((first == averaging || value == "adasum") && !f.broken(balance) &&
      c.get_string(balance) != "none")
    f.complain(balance, fmt::format("is \"{}\", and with {} every rank counts the same, however "
                                    "many samples it had: turn one of them off",
                                    c.get_string(balance), at(first)));
  if (value == "hierarchical" && !f.broken("averaging.group_sizes") &&
      !f.broken("averaging.periods") &&
      (levels.group_sizes.empty() || levels.group_sizes.size() != levels.periods.size()))
    f.complain("averaging.group_sizes",
               fmt::format("has {} entries and averaging.periods has {}: give the same number of "
                           "each, one per level",
                           levels.group_sizes.size(), levels.periods.size()));
}

}  // namespace trireme
