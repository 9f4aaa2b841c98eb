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

/// The keys that a configuration may have: the reader checks against them, `trireme config` prints
/// them. A key that is not in the table is an error. A program that has keys of its own adds its
/// sections to a copy of the built-in table, and loads its configurations with that:
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

  /// The keys of a section of the caller's own (config/fields.h). UsageError for a key without a
  /// help text, with a default that its own bounds refuse, with a condition on a key or a value
  /// that does not exist, or of a name that is taken: the table is then as it was.
  template <class Section>
  void add() {
    FieldRows made;
    Section().fields(made);
    add(std::move(made.rows));
  }
  void add(std::vector<KeyInfo> rows);

  /// In the order in which `config show` prints them.
  const std::vector<KeyInfo>& keys() const { return keys_; }
  /// The row of a dotted path (a "section.*" row answers for what is below it); null if there is
  /// none.
  const KeyInfo* find(std::string_view path) const;
  /// True for "optimizer", "optimizer.params": something in the table stands below.
  bool is_section(std::string_view path) const;
  /// The known key or section that looks most like `path`.
  std::string nearest(std::string_view path) const;
  /// Null for a key without a default.
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
