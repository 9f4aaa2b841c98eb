// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "trireme/config/config.h"

namespace trireme {

/// Builds a Config level by level: a level is a file, or all the flags together.
class ConfigLoader {
 public:
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
  void report(size_t order, KeyReport report);
  void close_level();
  void judge(const std::string& path, const Given& given);
  void derive();
  void check_conditions();
  void check_together();
  void check_precision_together();
  void check_recompute_together();
  void check_balance_together();
  void check_data_efficiency_together();
  void check_data_together();
  void derive_zero();
  void check_zero_together();
  void check_offload_together();
  void check_slow_link_together();
  void check_tuning(const char* strategy);
  /// Fine by itself, and of no effect beside other values.
  void idle(std::string_view path, const std::string& why);
  void complain(std::string_view path, const std::string& why);
  bool broken(std::string_view path) const;

  Config config_;
  std::map<std::string, Given, std::less<>> merged_;  // by the key's own path, not an alias
  std::map<std::string, int, std::less<>> derived_level_;
  std::map<std::string, size_t, std::less<>> reported_;  // path → index into reports_
  std::vector<std::pair<size_t, KeyReport>> reports_;
  std::vector<std::string> kept_;  // "_kept" of a document that Config::to_json wrote
  int level_ = 0;
  size_t order_ = 0;
};

/// Of the value and of all that is in it.
void set_origin(Value* value, const Origin& origin);

/// `value` as `key` wants it: choices in their spelling, one string as a list of one, numbers in
/// their kind. Returns an empty string, or what is wrong: "expected an integer, found …".
std::string normalise(const KeyInfo& key, const Value& value, Value* out);

/// Where DeepSpeed's meaning surprises those who come from elsewhere.
std::vector<std::string> deepspeed_surprises(const Config& config);

}  // namespace trireme
