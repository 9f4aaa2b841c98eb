// SPDX-License-Identifier: Apache-2.0
// Batches by a budget of tokens: DeepSpeed's data_efficiency.data_sampling.dynamic_batching.
#include <fmt/core.h>

#include "trireme/config/config_loader.h"
#include "trireme/config/keys.h"

namespace trireme {
namespace {

constexpr const char* kOuter = "data_efficiency.enabled";
constexpr const char* kSampling = "data_efficiency.data_sampling.enabled";
constexpr const char* kEnabled = "data_efficiency.data_sampling.dynamic_batching.enabled";
constexpr const char* kTokens = "data_efficiency.data_sampling.dynamic_batching.max_tokens";

std::string below(const char* name) {
  return std::string("data_efficiency.data_sampling.dynamic_batching.") + name;
}

}  // namespace

namespace detail {

std::vector<KeyInfo> data_efficiency_keys() {
  const std::string on = std::string(kEnabled) + "=true";
  std::vector<KeyInfo> keys = {
      {.path = kOuter,
       .type = KeyType::boolean,
       .default_json = "false",
       .help = "the section data_efficiency is read"},
      {.path = kSampling,
       .type = KeyType::boolean,
       .default_json = "false",
       .when = std::string(kOuter) + "=true",
       .idle = true,
       .help = "its part data_sampling is read"},
      {.path = kEnabled,
       .type = KeyType::boolean,
       .default_json = "false",
       .when = std::string(kSampling) + "=true",
       .idle = true,
       .help = "micro-batches by a budget of tokens; needs data.type documents"},
      {.path = kTokens,
       .type = KeyType::integer,
       .min = 1,
       .max = 1e12,
       .when = on,
       .idle = true,
       .help = "tokens of a micro-batch: its sequences × the longest of them"},
      {.path = below("lr_scaling_method"),
       .type = KeyType::text,
       .default_json = "\"linear\"",
       .choices = "linear sqrt none",
       .when = on,
       .idle = true,
       .help = "how a step's learning rate follows its samples ÷ train_batch_size"},
      {.path = below("min_batch_size"),
       .type = KeyType::integer,
       .default_json = "1",
       .min = 1,
       .max = 1e9,
       .when = on,
       .idle = true,
       .help = "fewest sequences of a micro-batch; smaller ones are left out"},
      {.path = below("max_batch_size"),
       .type = KeyType::integer,
       .default_json = "0",
       .min = 0,
       .max = 1e9,
       .when = on,
       .idle = true,
       .help = "most sequences of a micro-batch; 0: no limit"},
      {.path = below("sequence_picking_order"),
       .type = KeyType::text,
       .default_json = "\"dataloader\"",
       .choices = "dataloader random seqlen",
       .when = on,
       .idle = true,
       .help = "which sequences come together: as the data has them, shuffled, or of one length"},
  };
  for (KeyInfo& key : keys) key.deepspeed = true;
  for (const char* path : {"data_efficiency.data_routing.enabled",
                           "data_efficiency.data_sampling.curriculum_learning.enabled"})
    keys.push_back({.path = path,
                    .type = KeyType::boolean,
                    .deepspeed = true,
                    .status = KeyStatus::refused,
                    .why = "a curriculum and dropped tokens change what is learned",
                    .harmless = "false"});
  return keys;
}

}  // namespace detail

void ConfigLoader::check_data_efficiency_together() {
  const Config& c = config_;
  if (broken(kEnabled) || !c.applies(kEnabled) || !c.get_bool(kEnabled)) return;
  auto at = [&](const char* path) {
    return fmt::format("{} {} ({})", path, *c.value_text(path), c.origin(path));
  };
  if (!broken("data.type") && c.get_string("data.type") != "documents")
    complain(kEnabled, fmt::format("batches sequences of different lengths, and those of {} have "
                                   "one: set data.type to documents",
                                   at("data.type")));
  if (!broken(kTokens) && !c.has(kTokens))
    complain(kEnabled, fmt::format("is true and needs {}", kTokens));
  if (!broken("training.reproducible") && c.get_bool("training.reproducible"))
    complain(kEnabled, fmt::format("makes micro-batches of different shapes, and {} is the promise "
                                   "that there is one: take one of them",
                                   at("training.reproducible")));
  if (!broken("balance.mode") && c.get_string("balance.mode") != "none")
    complain("balance.mode",
             fmt::format("deals samples to ranks, and {} deals whole micro-batches: "
                         "take one of them",
                         at(kEnabled)));
}

}  // namespace trireme
