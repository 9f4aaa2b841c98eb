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

/// What is right and wrong about each key that was given, in the order in which they were given.
class Findings {
 public:
  explicit Findings(const Config& config) : config_(config) {}

  /// `order`: of order(), one for each key as it is read.
  void report(size_t order, KeyReport entry);
  size_t order() { return order_++; }

  /// Wrong by itself: its default then says nothing about the user's intent.
  bool broken(std::string_view path) const;
  /// Each of them applies and is right by itself.
  bool fine(std::initializer_list<const char*> paths) const;
  /// An error about a key that was fine by itself: "PATH WHY".
  void complain(std::string_view path, const std::string& why);
  /// Fine by itself, and of no effect beside other values.
  void idle(std::string_view path, const std::string& why);

  std::vector<KeyReport> take();

 private:
  const Config& config_;
  std::map<std::string, size_t, std::less<>> reported_;  // path → index into reports_
  std::vector<std::pair<size_t, KeyReport>> reports_;
  size_t order_ = 0;
};

}  // namespace trireme
