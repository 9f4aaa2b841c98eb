// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "trireme/base/export.h"
#include "trireme/config/fields.h"
#include "trireme/config/json_reader.h"
#include "trireme/config/keys.h"

namespace trireme {

/// The keys that a configuration may have: the reader checks against them and `trireme config`
/// prints them; a key that is not in the table is an error. A program with keys of its own adds its
/// sections to a copy of the built-in table and loads its configurations with that copy:
///
///   KeyTable table = KeyTable::built_in_copy();
///   table.add<GameSection>();
///   auto keys = std::make_shared<const KeyTable>(std::move(table));
///   const Config config = Config::load(inputs, keys);
///   const GameSection game = config.section<GameSection>();
///
/// A table may be read from any thread once it no longer changes.
class TRIREME_API KeyTable {
 public:
  /// The keys of this version.
  static std::shared_ptr<const KeyTable> built_in();
  static KeyTable built_in_copy() { return *built_in(); }

  /// Adds the keys of a section of the caller's own (config/fields.h). Throws UsageError, leaving
  /// the table unchanged, for a key without help text, with a default outside its bounds, with a
  /// condition on an unknown key or value, or whose name is taken.
  template <class Section>
  void add() {
    FieldRows made;
    Section().fields(made);
    add(std::move(made.rows));
  }
  void add(std::vector<KeyInfo> rows);

  /// In the order in which `config show` prints them.
  const std::vector<KeyInfo>& keys() const { return keys_; }
  /// Returns the row of a dotted path (a "section.*" row covers everything below it), or null.
  const KeyInfo* find(std::string_view path) const;
  /// Whether there are keys below `path`, as for "optimizer" or "optimizer.params".
  bool is_section(std::string_view path) const;
  /// Returns the known key or section closest in spelling to `path`.
  std::string nearest(std::string_view path) const;
  /// Returns the default of a key, or null if it has none.
  const Value* default_of(const KeyInfo& key) const;

 private:
  static KeyTable make_built_in();
  void append(KeyInfo row);
  void check_new(const KeyInfo& row) const;

  std::vector<KeyInfo> keys_;
  std::unordered_map<std::string, size_t> by_path_;
  std::set<std::string, std::less<>> sections_;
  std::map<std::string, Value, std::less<>> defaults_;
};

}  // namespace trireme
