// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/base/export.h"

// JSON as DeepSpeed's users write it → a tree in which every value knows where it stands. Taken
// beside plain JSON: comments (// # /* */), trailing commas, a byte order mark. Numbers such as 5e8
// stay numbers; whether one may serve as an integer is asked of the value. Refused with
// FILE:LINE:COL: two members of one name, invalid UTF-8, more than 64 levels, 16 MiB or 100,000
// values.
namespace trireme {

/// Where a value was written. Line 0: not in a file (`name` is then "--set" or another flag).
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
  /// An integer, or a number such as 5e8 that is one. False beyond ±2^53 for the latter.
  bool to_integer(int64_t* out) const;
  bool to_number(double* out) const;
  const Value* find(std::string_view key) const;
  /// Compact JSON; reading it back gives an equal tree.
  std::string text() const;
  /// "the string \"abc\"", "5", "an array": for messages; long ones are cut.
  std::string describe() const;
  /// Same kind and content; origins do not count.
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

/// `name` is what messages call the text. Throws UsageError.
TRIREME_API Value read_json(const std::string& name, std::string_view text);
/// The same for a file; a file that cannot be read is a UsageError too.
TRIREME_API Value read_json_file(const std::string& path);

/// `text` in double quotes, escaped as JSON wants it.
TRIREME_API std::string json_quote(std::string_view text);

}  // namespace trireme
