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
// That list is the one home of a key: the table of keys is made from it (KeyTable::add), and
// Config::section<S>() fills the struct through it.
namespace trireme {

/// A member that a key fills. Where the key has no value, or does not apply, an optional member is
/// absent and any other keeps its default.
using FieldValue =
    std::variant<bool*, int64_t*, double*, std::string*, std::vector<int64_t>*,
                 std::vector<double>*, std::vector<std::string>*, std::optional<bool>*,
                 std::optional<int64_t>*, std::optional<double>*, std::optional<std::string>*,
                 std::optional<std::vector<int64_t>>*, std::optional<std::vector<double>>*,
                 std::optional<std::vector<std::string>>*>;

class TRIREME_API Fields {
 public:
  static constexpr double kMany = 1e9;  // more of anything counted here is a slip
  static constexpr double kWide = 1e6;

  virtual ~Fields() = default;
  /// A key and the member that holds its value. Type and default are the member's.
  template <class T>
  void field(KeyInfo key, T& member) {
    visit(std::move(key), FieldValue(&member));
  }
  /// A row without a member: another name of a key, or a key that is refused or without effect.
  virtual void row(KeyInfo key) = 0;

 private:
  virtual void visit(KeyInfo key, FieldValue member) = 0;
};

/// The rows that a section's list makes, with the types and defaults of its members.
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
