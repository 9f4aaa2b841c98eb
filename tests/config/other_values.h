// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "trireme/config/config.h"
#include "trireme/config/keys.h"

// For tests that walk the whole table of keys.
namespace trireme::testing {

/// A value of the key that is not its default, as --set takes it.
inline std::string other_value(const KeyInfo& key) {
  switch (key.type) {
    case KeyType::boolean:
      return key.default_json == "true" ? "false" : "true";
    case KeyType::integer:
    case KeyType::number:
      for (const char* text : {"2", "8", "0.5", "16", "64", "5000", "-0.5", "1"})
        if (const double n = std::stod(text);
            n >= key.min && n <= key.max && key.default_json != text &&
            key.default_json != std::string(text) + ".0" &&
            (key.type == KeyType::number || n == static_cast<double>(static_cast<int64_t>(n))))
          return text;
      return "";
    case KeyType::text:
      for (const auto& choice : split_words(key.choices))
        if ("\"" + choice + "\"" != key.default_json && choice != "auto") return choice;
      return "somewhere";
    case KeyType::integers:
      return "[2]";
    case KeyType::numbers:
      return "[0.5, 0.6]";
    default:
      return R"(["else*"])";
  }
}

/// The choices under which the key means something: "optimizer.type=SGD".
inline std::vector<std::string> chosen_for(const KeyInfo& key) {
  std::vector<std::string> sets;
  if (key.when.empty()) return sets;
  std::string condition = split_words(key.when, '|')[0];
  condition = condition.substr(0, condition.find(','));
  const KeyInfo* selector = find_key(condition.substr(0, condition.find('=')));
  if (selector) sets = chosen_for(*selector);
  sets.push_back(condition);
  return sets;
}

}  // namespace trireme::testing
