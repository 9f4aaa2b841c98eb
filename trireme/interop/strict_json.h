// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "trireme/base/export.h"

// JSON that somebody else may have written: duplicate keys and deep nesting are Corrupt, as is what
// does not parse. `where` begins the message ("/run/step-00000100/model.safetensors: header").
namespace trireme {

/// More values than this at once are Corrupt: "[],[],…" takes 20 times as much memory as its text.
inline constexpr size_t kMostJsonValues = 2'000'000;

TRIREME_API nlohmann::json parse_strict_json(std::string_view text, const std::string& where,
                                             int max_depth);

/// For texts of any length: the members of the root, an object (`depth` 1), or of the objects in it
/// (`depth` 2), one by one as they are read. What `body` was shown is forgotten, with its name: a
/// name that comes again is for `body` to refuse (check_first_of_name()), and kMostJsonValues is of
/// one member. body(root, section, name, value): `root` is what else has been read so far,
/// `section` the name of the object in it ("" for depth 1). Returns the root without such members.
using JsonMember = std::function<void(const nlohmann::json& root, const std::string& section,
                                      const std::string& name, const nlohmann::json& value)>;
TRIREME_API nlohmann::json for_each_json_member(std::string_view text, const std::string& where,
                                                int max_depth, int depth, const JsonMember& body);

/// Corrupt unless it `is_first`, as for names that occur twice in any other object.
TRIREME_API void check_first_of_name(bool is_first, const std::string& name,
                                     const std::string& where);

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
