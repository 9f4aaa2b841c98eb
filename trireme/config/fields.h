// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "trireme/base/export.h"
#include "trireme/config/keys.h"

// A section of the configuration is a plain struct whose members hold the defaults, with
//
//   void fields(Fields& f) {
//     f.field({.path = "monitor.progress", .help = "progress on the terminal"}, progress);
//     …
//
// That list is the only definition of a key: the table of keys is built from it (KeyTable::add),
// and Config::section<S>() fills the struct through it.
namespace trireme {

/// A member that a key fills. If the key has no value or does not apply, an optional member is
/// absent and any other keeps its default.
using FieldValue =
    std::variant<bool*, int64_t*, double*, std::string*, std::vector<int64_t>*,
                 std::vector<double>*, std::vector<std::string>*, std::optional<bool>*,
                 std::optional<int64_t>*, std::optional<double>*, std::optional<std::string>*,
                 std::optional<std::vector<int64_t>>*, std::optional<std::vector<double>>*,
                 std::optional<std::vector<std::string>>*>;

class TRIREME_API Fields {
 public:
  static constexpr double kMany = 1e9;  // a larger count is taken for a typing error
  static constexpr double kWide = 1e6;

  virtual ~Fields() = default;
  /// Declares a key and the member that holds its value, which gives its type and default.
  template <class T>
  void field(KeyInfo key, T& member) {
    visit(std::move(key), FieldValue(&member));
  }
  /// Declares a key without a member: an alias, or a key that is refused or without effect.
  virtual void row(KeyInfo key) = 0;

 private:
  virtual void visit(KeyInfo key, FieldValue member) = 0;
};

/// Collects the rows of a section's list, with the types and defaults of its members.
class TRIREME_API FieldRows final : public Fields {
 public:
  void row(KeyInfo key) override { rows.push_back(std::move(key)); }

  std::vector<KeyInfo> rows;

 private:
  void visit(KeyInfo key, FieldValue member) override;
};

class Config;

/// Fills the members of a section from a configuration.
class TRIREME_API FieldReader final : public Fields {
 public:
  explicit FieldReader(const Config& config) : config_(config) {}
  void row(KeyInfo) override {}

 private:
  void visit(KeyInfo key, FieldValue member) override;

  const Config& config_;
};

}  // namespace trireme
