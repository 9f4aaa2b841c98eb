// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "trireme/config/config.h"
#include "trireme/config/key_table.h"
#include "trireme/config/rules/rules.h"

namespace trireme {

/// Builds a Config level by level. A level is a file, or all the flags together.
class ConfigLoader {
 public:
  /// If `table` is null, the keys of this version are used.
  explicit ConfigLoader(std::shared_ptr<const KeyTable> table) {
    config_.table_ = std::move(table);
  }

  void add_document(const Value& root);
  void add_overrides(const std::vector<ConfigOverride>& overrides);
  Inspection finish();

 private:
  struct Given {
    const KeyInfo* key = nullptr;
    Value value;
    int level = 0;
    size_t order = 0;
  };

  void walk(const std::string& path, const Value& value, const Origin& at, bool from_flag);
  void leaf(const std::string& path, const KeyInfo& row, const Value& value, bool from_flag);
  void wrong(const std::string& path, const Value& value, const Origin& at, const std::string& why);
  void close_level();
  void judge(const std::string& path, const Given& given);
  void check_conditions();

  Config config_;
  Findings findings_{config_};
  Derived derived_{config_};
  std::map<std::string, Given, std::less<>> merged_;  // by the key's own path, not an alias
  std::vector<std::string> kept_;  // "_kept" of a document that Config::to_json wrote
  int level_ = 0;
};

/// Sets the origin of the value and of everything in it.
void set_origin(Value* value, const Origin& origin);

/// Converts `value` to the form that `key` requires: choices in their canonical spelling, one
/// string as a list of one, numbers in their type. Returns an empty string, or the error: "expected
/// an integer, found …".
std::string normalise(const KeyInfo& key, const Value& value, Value* out);

}  // namespace trireme
