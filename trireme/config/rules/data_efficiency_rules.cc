// SPDX-License-Identifier: Apache-2.0
// Rules for batches sized by a budget of tokens: DeepSpeed's
// data_efficiency.data_sampling.dynamic_batching.
#include <fmt/core.h>

#include "trireme/config/rules/rules.h"
#include "trireme/config/sections/balance.h"
#include "trireme/config/sections/data.h"
#include "trireme/config/sections/training.h"

namespace trireme {
namespace {

constexpr const char* kEnabled = "data_efficiency.data_sampling.dynamic_batching.enabled";
constexpr const char* kTokens = "data_efficiency.data_sampling.dynamic_batching.max_tokens";

}  // namespace

void data_efficiency_rules(const Config& c, Findings& f) {
  if (f.broken(kEnabled) || !c.applies(kEnabled) || !c.get_bool(kEnabled)) return;
  auto at = [&](const char* path) {
    return fmt::format("{} {} ({})", path, *c.value_text(path), c.origin(path));
  };
  if (!f.broken("data.type") && c.section<DataSection>().type != "documents")
    f.complain(kEnabled, fmt::format("batches sequences of different lengths, and those of {} all "
                                     "have the same: set data.type to documents",
                                     at("data.type")));
  if (!f.broken(kTokens) && !c.has(kTokens))
    f.complain(kEnabled, fmt::format("is true and needs {}", kTokens));
  if (!f.broken("training.reproducible") && c.section<TrainingSection>().reproducible)
    f.complain(kEnabled, fmt::format("makes micro-batches of different shapes, and {} needs fixed "
                                     "shapes: remove one of them",
                                     at("training.reproducible")));
  if (!f.broken("balance.mode") && c.section<BalanceSection>().mode != "none")
    f.complain("balance.mode", fmt::format("distributes samples over ranks, and {} distributes "
                                           "whole micro-batches: remove one of them",
                                           at(kEnabled)));
}

}  // namespace trireme
