// SPDX-License-Identifier: Apache-2.0
#include "trireme/train/program/updates.h"

#include <algorithm>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>

#include "trireme/base/check.h"
#include "trireme/config/key_table.h"
#include "trireme/config/sections/balance.h"
#include "trireme/config/sections/comm.h"

namespace trireme {

std::vector<Update> updates_of(Program& program, const Config& config,
                               const std::vector<Piece>& pieces) {
  std::vector<Update> updates = program.updates(config);
  if (updates.empty()) {
    updates.push_back({"all", {}, {}});
    for (const Piece& p : pieces) updates[0].pieces.push_back(p.path);
  }
  std::map<std::string, std::string> taken;
  for (size_t i = 0; i < updates.size(); ++i) {
    const Update& u = updates[i];
    check<UsageError>(!u.name.empty() && !u.pieces.empty(),
                      "Program::updates(): update {} has no {}", i,
                      u.name.empty() ? "name" : "pieces");
    for (size_t j = 0; j < i; ++j)
      check<UsageError>(updates[j].name != u.name, "Program::updates(): two are called '{}'",
                        u.name);
    for (const std::string& path : u.pieces) {
      const bool known =
          std::any_of(pieces.begin(), pieces.end(), [&](const Piece& p) { return p.path == path; });
      check<UsageError>(known,
                        "Program::updates(): '{}' has a piece '{}', which make() did not make",
                        u.name, path);
      const auto [at, is_new] = taken.emplace(path, u.name);
      check<UsageError>(is_new, "Program::updates(): piece '{}' is in '{}' and in '{}'", path,
                        at->second, u.name);
    }
  }
  return updates;
}

Config config_of_update(const Config& config, const std::vector<std::string>& sets) {
  if (sets.empty()) return config;
  auto table = std::make_shared<const KeyTable>(config.table());
  // Keys that the update's own settings make meaningless (the betas of another optimizer) are no
  // error.
  std::vector<std::string> choices;
  for (const std::string& set : sets)
    for (const KeyInfo& key : table->keys())
      if (("|" + key.when).find("|" + set.substr(0, set.find('=') + 1)) != std::string::npos) {
        choices.push_back(set);
        break;
      }
  const Config chosen = Config::from_text("the program's update", "{}", choices, table);
  nlohmann::json values = nlohmann::json::parse(config.to_json());
  for (const KeyInfo& key : table->keys()) {
    if (key.status != KeyStatus::supported || key.when.empty() || !config.applies(key.path))
      continue;
    const bool concerned = std::any_of(choices.begin(), choices.end(), [&](const std::string& set) {
      return ("|" + key.when).find("|" + set.substr(0, set.find('=') + 1)) != std::string::npos;
    });
    if (!concerned || chosen.applies(key.path)) continue;
    nlohmann::json* here = &values;
    const std::vector<std::string> parts = split_words(key.path, '.');
    for (size_t i = 0; here && i + 1 < parts.size(); ++i)
      here = here->contains(parts[i]) ? &(*here)[parts[i]] : nullptr;
    if (here) here->erase(parts.back());
  }
  return Config::from_text("the program's update", values.dump(), sets, table);
}

void check_keys_of_one_update(const Config& c, const PrecisionPlan& precision, size_t updates) {
  const auto comm = c.section<CommSection>();
  struct Refusal {
    const char* key;
    bool asked;
  };
  for (const Refusal& r :
       std::vector<Refusal>{{"fp16.emulate", precision.emulated()},
                            {"balance.mode", c.section<BalanceSection>().mode != "none"},
                            {"comm.tune_buckets", comm.tune_buckets},
                            {"comm.buckets_file", comm.buckets_file.has_value()}})
    check<UsageError>(
        !r.asked, "{}: {} is for a program with one update, and this one has {}: remove the key",
        c.origin(r.key), r.key, updates);
}

}  // namespace trireme
