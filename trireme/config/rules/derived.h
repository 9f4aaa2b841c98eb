// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <initializer_list>
#include <map>
#include <string>
#include <string_view>

#include "trireme/config/config.h"

namespace trireme {

/// Defaults of a configuration that follow from its other values.
class Derived {
 public:
  explicit Derived(Config& config) : config_(config) {}

  void set(std::string_view path, Value value);
  /// The same, chosen as late as the latest of `from`: keys that do not apply any more, of an
  /// earlier file, then give way.
  void set(std::string_view path, Value value, std::initializer_list<const char*> from);
  /// The level of the file or the flags that chose the value; 0: a default.
  int level_of(std::string_view path) const;

 private:
  Config& config_;
  std::map<std::string, int, std::less<>> levels_;
};

}  // namespace trireme
