// SPDX-License-Identifier: Apache-2.0
#include <nlohmann/json.hpp>

#include "trireme/config/config.h"
#include "trireme/config/key_table.h"

namespace trireme {
namespace {

using Json = nlohmann::ordered_json;

Json to_json_value(const Value& value) { return Json::parse(value.text()); }

Json& at_path(Json& root, const std::string& path) {
  Json* here = &root;
  for (const auto& part : split_words(path, '.')) here = &(*here)[part];
  return *here;
}

}  // namespace

std::string Config::to_json(const Batches* batches) const {
  Json root = Json::object(), origins = Json::object(), derived = Json::object(),
       kept = Json::array();
  for (const auto& key : table().keys()) {
    const std::string& path = key.path;
    if (key.status != KeyStatus::supported || !key.alias_of.empty() || !applies(path) ||
        !lookup(path))
      continue;
    if (derived_.contains(path)) derived[path] = to_json_value(*lookup(path));
    // Defaults derived from other values are derived again when this is loaded.
    if (derived_.contains(path) && is_default(path)) continue;
    auto it = given_.find(path);
    at_path(root, path) = to_json_value(it == given_.end() ? *lookup(path) : it->second.value);
    origins[path] = origin(path);
    if (is_kept(path) && (path == "train_batch_size" || path == "train_micro_batch_size_per_gpu" ||
                          path == "gradient_accumulation_steps"))
      kept.push_back(path);
  }
  for (const auto& [path, value] : ignored_) {
    at_path(root, path) = to_json_value(value);
    origins[path] = value.origin.str();
  }
  if (batches) {
    derived["train_batch_size"] = batches->train;
    derived["train_micro_batch_size_per_gpu"] = batches->micro;
    derived["gradient_accumulation_steps"] = batches->accumulation;
    derived["data_parallel_ranks"] = batches->dp;
  }
  root["_origins"] = std::move(origins);
  if (!derived.empty()) root["_derived"] = std::move(derived);
  if (!kept.empty()) root["_kept"] = std::move(kept);
  return root.dump(2) + "\n";
}

}  // namespace trireme
