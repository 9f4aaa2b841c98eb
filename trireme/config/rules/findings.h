// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <initializer_list>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "trireme/config/config.h"

namespace trireme {

/// Collects what is valid or wrong about each given key, in the order in which they were given.
class Findings {
 public:
  explicit Findings(const Config& config) : config_(config) {}

  /// `order` comes from order(), once for each key as it is read.
  void report(size_t order, KeyReport entry);
  size_t order() { return order_++; }

  /// Whether the key's own value is invalid; its default then says nothing about the user's intent.
  bool broken(std::string_view path) const;
  /// Whether each of the keys applies and has a valid value of its own.
  bool fine(std::initializer_list<const char*> paths) const;
  /// Reports an error about a key whose own value is valid: "PATH WHY".
  void complain(std::string_view path, const std::string& why);
  /// Reports that a valid key has no effect beside other values.
  void idle(std::string_view path, const std::string& why);

  std::vector<KeyReport> take();

 private:
  const Config& config_;
  std::map<std::string, size_t, std::less<>> reported_;  // path → index into reports_
  std::vector<std::pair<size_t, KeyReport>> reports_;
  size_t order_ = 0;
};

}  // namespace trireme
