// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/base/export.h"

// THE ONE table of configuration keys: the reader checks against it, `trireme config` prints it. A
// key that is not here is an error. Our keys and those of DeepSpeed that run stand in key_table.cc
// and the *_keys.cc that it lists; those of DeepSpeed that we take without effect, or refuse, in
// deepspeed_keys.cc.
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

/// In the order in which `config show` prints them.
TRIREME_API const std::vector<KeyInfo>& all_keys();
/// The row of a dotted path (a "section.*" row answers for what is below it); null if there is
/// none.
TRIREME_API const KeyInfo* find_key(std::string_view path);
/// True for "optimizer", "optimizer.params": something in the table stands below.
TRIREME_API bool is_section(std::string_view path);
/// The known key or section that looks most like `path`.
TRIREME_API std::string nearest_key(std::string_view path);
/// "an integer", "an array of strings", …
TRIREME_API std::string_view type_name(KeyType type);
TRIREME_API std::string_view status_name(KeyStatus status);
TRIREME_API size_t edit_distance(std::string_view a, std::string_view b);
/// "a b c" → {"a", "b", "c"}.
TRIREME_API std::vector<std::string> split_words(std::string_view words, char separator = ' ');

namespace detail {
std::vector<KeyInfo> supported_keys();
std::vector<KeyInfo> precision_keys();
std::vector<KeyInfo> recompute_keys();
std::vector<KeyInfo> balance_keys();
std::vector<KeyInfo> data_efficiency_keys();
std::vector<KeyInfo> zero_keys();
std::vector<KeyInfo> offload_keys();
std::vector<KeyInfo> compression_keys();
std::vector<KeyInfo> averaging_keys();
std::vector<KeyInfo> activation_checkpointing_keys();
std::vector<KeyInfo> other_deepspeed_keys();
}  // namespace detail

}  // namespace trireme
