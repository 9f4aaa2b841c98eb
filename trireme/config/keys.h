// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/base/export.h"

// One key of the configuration, as a row of the key table (config/key_table.h). Our keys, and
// DeepSpeed's keys that have an effect, are defined in config/sections/, one section per file;
// DeepSpeed's keys that are accepted without effect or refused, in
// config/sections/deepspeed_keys.cc.
namespace trireme {

enum class KeyType { any, boolean, integer, number, text, integers, numbers, texts };

enum class KeyStatus {
  supported,
  without_effect,  // accepted, listed by `config check` with the reason
  refused,         // with the reason; a value equal to `harmless` requests nothing and is accepted
};

struct KeyInfo {
  std::string path{};  // dotted; "comet.*" stands for everything below comet
  KeyType type = KeyType::any;
  std::string default_json{};  // "" = none
  /// The bounds of a number, and of each element of a list.
  double min = -std::numeric_limits<double>::infinity();
  double max = std::numeric_limits<double>::infinity();
  std::string choices{};  // of text, separated by spaces; compared without case
  /// The condition under which the key applies: "optimizer.type=SGD", "data.type=digits,dummy",
  /// "a=1|b=2" (either).
  std::string when{};
  /// If `when` does not hold, the key is accepted without effect, as in DeepSpeed, instead of being
  /// an error.
  bool idle = false;
  std::string help{};
  bool deepspeed = false;
  KeyStatus status = KeyStatus::supported;
  std::string why{};  // for the other two statuses
  /// JSON. Of a refused key: the value that requests nothing. Of an alias: the value that leaves
  /// alias_of as if it were not given.
  std::string harmless{};
  std::string alias_of{};  // another name of that key
  /// For an older boolean name: the JSON value that true gives to alias_of; false gives none.
  std::string alias_true{};
  std::string refused_choices{};  // of text: names known elsewhere but not supported here; `why`
                                  // gives the reason
};

// These look up KeyTable::built_in() (config/key_table.h).
TRIREME_API const std::vector<KeyInfo>& all_keys();
TRIREME_API const KeyInfo* find_key(std::string_view path);
TRIREME_API bool is_section(std::string_view path);
TRIREME_API std::string nearest_key(std::string_view path);

/// Returns the type's name for messages: "an integer", "an array of strings".
TRIREME_API std::string_view type_name(KeyType type);
TRIREME_API std::string_view status_name(KeyStatus status);
TRIREME_API size_t edit_distance(std::string_view a, std::string_view b);
/// Splits "a b c" into {"a", "b", "c"}.
TRIREME_API std::vector<std::string> split_words(std::string_view words, char separator = ' ');

}  // namespace trireme
