// SPDX-License-Identifier: Apache-2.0
#include "trireme/train/program/program_keys.h"

#include <memory>
#include <string>
#include <vector>

#include "trireme/base/check.h"
#include "trireme/config/key_table.h"
#include "trireme/config/sections/balance.h"
#include "trireme/config/sections/data_efficiency.h"
#include "trireme/config/sections/training.h"

namespace trireme {

void check_no_built_in_keys(const Config& c) {
  // A run's config.json has every value: those equal to the default request nothing.
  const Config defaults =
      Config::from_text("defaults", "{}", {}, std::make_shared<const KeyTable>(c.table()));
  for (const KeyInfo& key : c.table().keys()) {
    if (key.status != KeyStatus::supported || !key.alias_of.empty()) continue;
    const bool theirs = key.path.starts_with("model.") || key.path.starts_with("generate.") ||
                        (key.path.starts_with("data.") && key.path != "data.workers") ||
                        key.path == "training.activation_memory_mb" ||
                        key.path.starts_with("parallelism.cp");
    check<UsageError>(
        !theirs || c.value_text(key.path) == defaults.value_text(key.path),
        "{}: {} applies to the built-in models, and this program has its own: remove the key",
        c.origin(key.path), key.path);
  }
}

void check_program_keys(const Config& c, const Sources& sources) {
  const auto training = c.section<TrainingSection>();
  const char* wants_data = "needs training data: return it from Program::data()";
  struct Refusal {
    const char* key;
    bool asked;
    const char* why;
  };
  const bool none = !sources.train;
  for (const Refusal& r : std::vector<Refusal>{
           {"training.epochs", none && training.epochs > 0, wants_data},
           {"training.reproducible", none && training.reproducible,
            "distributes leaves of training data to ranks: return it from Program::data()"},
           {"balance.mode", none && c.section<BalanceSection>().mode != "none", wants_data},
           {"data_efficiency.data_sampling.dynamic_batching.enabled",
            none && c.section<DataEfficiencySection>().batching_enabled, wants_data},
           {"training.eval_every", !sources.held_out && training.eval_every > 0,
            "needs held-out data: return it from Program::data()"},
           {"training.eval_epochs", !sources.held_out && training.eval_epochs,
            "needs held-out data: return it from Program::data()"}})
    check<UsageError>(!r.asked, "{}: {} {}", c.origin(r.key), r.key, r.why);
}

}  // namespace trireme
