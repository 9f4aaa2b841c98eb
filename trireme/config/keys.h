// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/base/export.h"

// One key of the configuration, as the table of keys has it (config/key_table.h). Our keys, and
// those of DeepSpeed that run, stand in config/sections/, one section a file; those of DeepSpeed
// that we take without effect, or refuse, in config/sections/deepspeed_keys.cc.
namespace trireme {

enum class KeyType { any, boolean, integer, number, text, integers, numbers, texts };

enum class KeyStatus {
  supported,
  without_effect,  // accepted, listed by `config check` with the reason
  refused,         // with the reason; a value equal to `harmless` asks for nothing and is fine
};

struct KeyInfo {
  std::string path{};  // dotted; "comet.*" stands for everything below comet
  KeyType type = KeyType::any;
  std::string default_json{};  // "" = none
  double min =
      -std::numeric_limits<double>::infinity();  // of numbers, and of each element of a list
  double max = std::numeric_limits<double>::infinity();
  std::string choices{};  // of text, separated by spaces; compared without case
  /// "optimizer.type=SGD", "data.type=digits,dummy", "a=1|b=2" (either): means something only then.
  std::string when{};
  /// Where `when` does not hold the key is accepted without effect, as DeepSpeed takes it; else
  /// that is an error.
  bool idle = false;
  std::string help{};
  bool deepspeed = false;
  KeyStatus status = KeyStatus::supported;
  std::string why{};       // for the other two statuses
  std::string harmless{};  // JSON, for refused
  std::string alias_of{};  // another name of that key
  /// JSON, of an older name that was true or false: what true says of alias_of; false says nothing.
  std::string alias_true{};
  std::string
      refused_choices{};  // of text: names that exist elsewhere and do not run here; `why` says why
};

// Of KeyTable::built_in(), config/key_table.h.
TRIREME_API const std::vector<KeyInfo>& all_keys();
TRIREME_API const KeyInfo* find_key(std::string_view path);
TRIREME_API bool is_section(std::string_view path);
TRIREME_API std::string nearest_key(std::string_view path);

/// "an integer", "an array of strings", …
TRIREME_API std::string_view type_name(KeyType type);
TRIREME_API std::string_view status_name(KeyStatus status);
TRIREME_API size_t edit_distance(std::string_view a, std::string_view b);
/// "a b c" → {"a", "b", "c"}.
TRIREME_API std::vector<std::string> split_words(std::string_view words, char separator = ' ');

}  // namespace trireme
