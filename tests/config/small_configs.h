// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/base/file.h"
#include "trireme/config/config.h"

// Configurations of a few lines, for tests/config.
namespace trireme::testing {

using Sets = std::vector<std::string>;

inline Config config(std::string_view text, const Sets& sets = {}) {
  return Config::from_text("c.json", text, sets);
}

inline std::string error_of(std::string_view text, const Sets& sets = {}) {
  try {
    config(text, sets);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "";
}

/// Files of one folder, loaded in order; origins say a.json, b.json, …
struct Files {
  PrivateFolder folder;
  std::vector<std::string> paths;
  Files(std::initializer_list<std::string_view> texts) {
    char name = 'a';
    for (auto text : texts) {
      paths.push_back(folder / (std::string(1, name++) + ".json"));
      write_file_atomic(paths.back(), text);
    }
  }
  Config load(const Sets& sets = {}) const { return Config::load(ConfigInputs::from(paths, sets)); }
  Inspection inspect(const Sets& sets = {}) const {
    return Config::inspect(ConfigInputs::from(paths, sets));
  }
};

inline std::string product(const Batches& b) {
  return std::to_string(b.train) + "=" + std::to_string(b.micro) + "*" +
         std::to_string(b.accumulation) + "*" + std::to_string(b.dp);
}

inline const KeyReport* find(const Inspection& inspection, std::string_view path) {
  for (const auto& key : inspection.keys)
    if (key.path == path) return &key;
  return nullptr;
}

}  // namespace trireme::testing
