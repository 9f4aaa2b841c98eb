// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/base/export.h"

// Reads JSON as DeepSpeed's users write it into a tree in which every value knows its position.
// Accepted beyond plain JSON: comments (// # /* */), trailing commas, a byte order mark. Numbers
// such as 5e8 stay numbers; Value::to_integer() decides whether one is an integer. Refused with
// FILE:LINE:COL: duplicate member names, invalid UTF-8, and more than 64 levels, 16 MiB or 100,000
// values.
namespace trireme {

/// Where a value was written. Line 0 means that it is not in a file (`name` is then "--set" or
/// another flag).
struct Origin {
  std::shared_ptr<const std::string> name;
  int line = 0;
  int column = 0;  // in characters, from 1
  /// "examples/gpt.json:12:5", "--set", or "default".
  TRIREME_API std::string str() const;
};

class TRIREME_API Value {
 public:
  enum class Kind { null, boolean, integer, number, string, array, object };
  struct Member;

  Kind kind = Kind::null;
  bool boolean = false;
  int64_t integer = 0;
  double number = 0;  // also set for an integer
  std::string string;
  std::vector<Value> array;
  std::vector<Member> members;  // of an object, as written
  Origin origin;

  bool is(Kind k) const { return kind == k; }
  /// Gets an integer, or a number such as 5e8 that equals one and is within ±2^53; returns false
  /// for other values.
  bool to_integer(int64_t* out) const;
  bool to_number(double* out) const;
  const Value* find(std::string_view key) const;
  /// Returns compact JSON; reading it back gives an equal tree.
  std::string text() const;
  /// Describes the value for messages: "the string \"abc\"", "5", "an array". Long values are cut.
  std::string describe() const;
  /// Compares kind and content; origins do not count.
  bool operator==(const Value& other) const;

  static Value of(bool v);
  static Value of(int64_t v);
  static Value of(double v);
  static Value of(std::string v);
};

struct Value::Member {
  std::string key;
  Origin key_origin;
  Value value;
};

inline constexpr size_t kConfigFileLimit = size_t{16} << 20;
inline constexpr int kConfigDepthLimit = 64;
inline constexpr size_t kConfigValueLimit = 100'000;

/// Parses a JSON text; `name` is its name in messages. Throws UsageError.
TRIREME_API Value read_json(const std::string& name, std::string_view text);
/// Parses a JSON file. Throws UsageError, also if the file cannot be read.
TRIREME_API Value read_json_file(const std::string& path);

/// Returns `text` in double quotes, escaped for JSON.
TRIREME_API std::string json_quote(std::string_view text);

}  // namespace trireme
