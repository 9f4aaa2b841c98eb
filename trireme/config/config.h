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
#include "trireme/config/fields.h"
#include "trireme/config/json_reader.h"
#include "trireme/config/keys.h"
#include "trireme/config/sharding.h"

// Files and flags → values, each with its origin. Precedence: flag and --set > later file > earlier
// file > default. "auto" and null in a file mean: as if not given there; in a flag: the default. A
// Config is immutable once loaded and may be read from any thread.
namespace trireme {

/// A flag that sets a key; `value` is read as JSON where that gives the key's type, else as text.
struct ConfigOverride {
  std::string key;
  std::string value;
  std::string origin = "--set";
};

/// "a.b=c" → {a.b, c}. Throws UsageError.
TRIREME_API ConfigOverride parse_set(std::string_view text);

struct ConfigInputs {
  std::vector<std::string> files;
  std::vector<ConfigOverride> overrides;  // all of one level; of two for one key the last wins

  /// `sets` as typed behind --set.
  TRIREME_API static ConfigInputs from(std::vector<std::string> files,
                                       const std::vector<std::string>& sets = {});
};

/// What became of one key that was given.
struct KeyReport {
  enum class Verdict { supported, without_effect, refused, wrong };
  std::string path{};
  std::string value{};  // as JSON
  Origin origin{};
  Verdict verdict = Verdict::supported;
  std::string why{};  // empty for supported
  bool deepspeed = false;
  /// The sentence that load() throws; empty when the key is fine.
  std::string error{};
};

struct Inspection;
class KeyReads;
class KeyTable;

class TRIREME_API Config {
 public:
  /// Throws UsageError for the first thing that is wrong: FILE:LINE:COL, what, what to do. `table`:
  /// the keys that there are; null: those of this version.
  static Config load(const ConfigInputs& inputs, std::shared_ptr<const KeyTable> table = nullptr);
  /// The same for a text; `name` stands for the file.
  static Config from_text(const std::string& name, std::string_view text,
                          const std::vector<std::string>& sets = {},
                          std::shared_ptr<const KeyTable> table = nullptr);
  /// Everything that is right and wrong about every key; throws only for what cannot be read at
  /// all.
  static Inspection inspect(const ConfigInputs& inputs,
                            std::shared_ptr<const KeyTable> table = nullptr);
  /// A copy that notes in `reads` what is read from it, and from copies of it (key_reads.h).
  Config noting(std::shared_ptr<KeyReads> reads) const;
  /// The table that it was loaded with.
  const KeyTable& table() const;

  /// A section with its values (config/fields.h). What does not apply reads as its default, or as
  /// absent where the member is optional. UsageError for a section that is not in the table.
  template <class Section>
  Section section() const {
    Section filled;
    FieldReader reader(*this);
    filled.fields(reader);
    return filled;
  }

  // Values by dotted path. A path that is not in the table, another type than the table's, or a key
  // that has neither value nor default is a UsageError (has() asks first). get_double takes integer
  // keys too.
  int64_t get_int(std::string_view path) const;
  double get_double(std::string_view path) const;
  bool get_bool(std::string_view path) const;
  std::string get_string(std::string_view path) const;
  std::vector<std::string> get_string_list(std::string_view path) const;
  std::vector<int64_t> get_int_list(std::string_view path) const;
  std::vector<double> get_double_list(std::string_view path) const;

  /// A value or a default is there.
  bool has(std::string_view path) const;
  /// Nobody gave it.
  bool is_default(std::string_view path) const;
  /// "examples/gpt.json:12:5", "--set", "default".
  std::string origin(std::string_view path) const;
  /// The value as JSON; nothing where has() is false.
  std::optional<std::string> value_text(std::string_view path) const;
  /// False for keys of another model, optimizer, … than the one chosen.
  bool applies(std::string_view path) const;

  /// train = micro × accumulation × dp: what is not given is derived. The newest file (or the
  /// flags) that gives batch numbers is believed; with fewer than two of them one older number
  /// stays beside them (train before micro before accumulation) as long as it fits.
  /// training.leaves, where it is set, is accumulation × dp. Throws UsageError with every factor
  /// when that cannot be.
  Batches resolve_batches(int dp) const;
  /// dp = dp_replicate × dp_shard: what is not given follows. resolve_batches() checks it too.
  /// UsageError with every factor when that cannot be.
  Sharding resolve_sharding(int dp) const;

  /// The run's config.json: resolved values, "_origins" and, with `batches`, "_derived". Loads
  /// again to the same values and hash.
  std::string to_json(const Batches* batches = nullptr) const;
  /// 16 hexadecimal digits of the resolved values, without origins; the same on every machine.
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
  /// What stands behind a condition: the value of a key that applies, else its default.
  const Value* chosen(std::string_view path) const;
  int level_of(std::string_view path) const;
  bool is_kept(std::string_view path) const;

  std::shared_ptr<const KeyTable> table_;              // null: the built-in one
  std::shared_ptr<KeyReads> reads_;                    // null: nobody asks
  std::map<std::string, Entry, std::less<>> given_;    // supported keys that apply
  std::map<std::string, Value, std::less<>> ignored_;  // accepted without effect
  std::map<std::string, Value, std::less<>> derived_;  // defaults that depend on other values
};

struct Inspection {
  Config config;  // of what is right
  std::vector<KeyReport> keys;
  /// Where DeepSpeed's meaning surprises, and what other values imply.
  std::vector<std::string> notes;
  bool ok() const {
    for (const auto& key : keys)
      if (!key.error.empty()) return false;
    return true;
  }
};

}  // namespace trireme
