// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <initializer_list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/base/export.h"
#include "trireme/config/batches.h"
#include "trireme/config/degrees.h"
#include "trireme/config/fields.h"
#include "trireme/config/json_reader.h"
#include "trireme/config/keys.h"
#include "trireme/config/sharding.h"

// Reads configuration files and flags into values, each with its origin. Precedence: flag and --set
// > later file > earlier file > default. In a file, "auto" and null count as not given there; in a
// flag, they restore the default. A Config is immutable once loaded and may be read from any
// thread.
namespace trireme {

/// A flag that sets a key. `value` is read as JSON if that gives the key's type, else as text.
struct ConfigOverride {
  std::string key;
  std::string value;
  std::string origin = "--set";
};

/// Splits "a.b=c" into {a.b, c}. Throws UsageError.
TRIREME_API ConfigOverride parse_set(std::string_view text);

struct ConfigInputs {
  std::vector<std::string> files;
  std::vector<ConfigOverride> overrides;  // all of one level; the last one for a key wins

  /// `sets` holds the arguments of --set as typed.
  TRIREME_API static ConfigInputs from(std::vector<std::string> files,
                                       const std::vector<std::string>& sets = {});
};

/// How one given key was treated.
struct KeyReport {
  enum class Verdict { supported, without_effect, refused, wrong };
  std::string path{};
  std::string value{};  // as JSON
  Origin origin{};
  Verdict verdict = Verdict::supported;
  std::string why{};  // empty for supported
  bool deepspeed = false;
  /// The sentence that load() throws; empty if the key is valid.
  std::string error{};
};

struct Inspection;
class KeyReads;
class KeyTable;

class TRIREME_API Config {
 public:
  /// Loads a configuration. Throws UsageError for the first error: FILE:LINE:COL, what is wrong,
  /// what to do. `table` lists the known keys; null means those of this version.
  static Config load(const ConfigInputs& inputs, std::shared_ptr<const KeyTable> table = nullptr);
  /// Loads from text; `name` stands for the file in messages.
  static Config from_text(const std::string& name, std::string_view text,
                          const std::vector<std::string>& sets = {},
                          std::shared_ptr<const KeyTable> table = nullptr);
  /// Reports on every key, valid or not. Throws only if the input cannot be read at all.
  static Inspection inspect(const ConfigInputs& inputs,
                            std::shared_ptr<const KeyTable> table = nullptr);
  /// Returns a copy that records in `reads` which keys are read from it and its copies
  /// (key_reads.h).
  Config noting(std::shared_ptr<KeyReads> reads) const;
  /// Returns the table that it was loaded with.
  const KeyTable& table() const;

  /// Returns a section filled with its values (config/fields.h). Keys that do not apply read as
  /// their default, or as absent if the member is optional. Throws UsageError if the section is not
  /// in the table.
  template <class Section>
  Section section() const {
    Section filled;
    FieldReader reader(*this);
    filled.fields(reader);
    return filled;
  }

  // Values by dotted path. They throw UsageError if the path is not in the table, the table gives
  // it another type, or it has neither value nor default (check with has()). get_double also
  // accepts integer keys.
  int64_t get_int(std::string_view path) const;
  double get_double(std::string_view path) const;
  bool get_bool(std::string_view path) const;
  std::string get_string(std::string_view path) const;
  std::vector<std::string> get_string_list(std::string_view path) const;
  std::vector<int64_t> get_int_list(std::string_view path) const;
  std::vector<double> get_double_list(std::string_view path) const;

  /// Whether the key has a value or a default.
  bool has(std::string_view path) const;
  /// Whether neither a file nor a flag gave the key.
  bool is_default(std::string_view path) const;
  /// Returns where the value comes from: "examples/gpt.json:12:5", "--set" or "default".
  std::string origin(std::string_view path) const;
  /// Returns the value as JSON, or nothing if has() is false.
  std::optional<std::string> value_text(std::string_view path) const;
  /// Returns false for keys of a model, optimizer or other choice that is not the selected one.
  bool applies(std::string_view path) const;

  /// Solves world = pp × dp × tp. Throws UsageError with every factor if there is no solution.
  Degrees resolve_degrees(int world) const;
  /// Solves train = micro × accumulation × dp for the numbers that are not given. The newest file
  /// (or the flags) with batch numbers takes precedence; if it gives fewer than two, one older
  /// number (train before micro before accumulation) is kept as long as it fits. If set,
  /// training.leaves must equal accumulation × dp. Throws UsageError with every factor if there is
  /// no solution.
  Batches resolve_batches(int world) const;
  /// Solves dp = dp_replicate × dp_shard for the number that is not given; resolve_batches() checks
  /// it too. Throws UsageError with every factor if there is no solution.
  Sharding resolve_sharding(int world) const;

  /// Returns the text of the run's config.json: resolved values, "_origins" and, with `batches`,
  /// "_derived". Loading it gives the same values and hash.
  std::string to_json(const Batches* batches = nullptr) const;
  /// Returns 16 hexadecimal digits computed from the resolved values, without origins; the same on
  /// every machine.
  std::string hash() const;

 private:
  friend class ConfigLoader;
  friend class Derived;
  friend class FieldReader;
  struct Entry {
    Value value;
    int level = 0;
  };
  void note(std::string_view path) const;
  const KeyInfo& row_of(std::string_view path) const;
  const Value& value(std::string_view path, std::initializer_list<KeyType> types) const;
  const Value* lookup(std::string_view path) const;
  /// The value that a condition is evaluated on: that of a key that applies, else its default.
  const Value* chosen(std::string_view path) const;
  int level_of(std::string_view path) const;
  bool is_kept(std::string_view path) const;

  std::shared_ptr<const KeyTable> table_;              // null: the built-in one
  std::shared_ptr<KeyReads> reads_;                    // null: reads are not recorded
  std::map<std::string, Entry, std::less<>> given_;    // supported keys that apply
  std::map<std::string, Value, std::less<>> ignored_;  // accepted without effect
  std::map<std::string, Value, std::less<>> derived_;  // defaults that depend on other values
};

struct Inspection {
  Config config;  // of the valid keys
  std::vector<KeyReport> keys;
  /// Where DeepSpeed's semantics may surprise, and what other values imply.
  std::vector<std::string> notes;
  bool ok() const {
    for (const auto& key : keys)
      if (!key.error.empty()) return false;
    return true;
  }
};

}  // namespace trireme
