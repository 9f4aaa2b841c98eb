// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "trireme/base/export.h"

// JSON that somebody else may have written: duplicate keys and deep nesting are Corrupt, as is what
// does not parse. `where` begins the message ("/run/step-00000100/model.safetensors: header").
namespace trireme {

TRIREME_API nlohmann::json parse_strict_json(std::string_view text, const std::string& where,
                                             int max_depth);

/// object[key], or Corrupt.
TRIREME_API const nlohmann::json& json_member(const nlohmann::json& object, const char* key,
                                              const std::string& where);
/// An integer in [0, 2^63), or Corrupt.
TRIREME_API int64_t json_size(const nlohmann::json& value, const std::string& where,
                              const char* what);
TRIREME_API std::string json_text(const nlohmann::json& value, const std::string& where,
                                  const char* what);
TRIREME_API std::vector<int64_t> json_sizes(const nlohmann::json& value, const std::string& where,
                                            const char* what);

/// The text as JSON; UsageError, beginning with `where`, if it is not UTF-8.
TRIREME_API std::string json_quoted(const std::string& text, const std::string& where);

}  // namespace trireme
