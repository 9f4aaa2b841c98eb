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
  /// Sets a value that counts as chosen at the latest level of `from`, so that keys of an earlier
  /// file that no longer apply give way.
  void set(std::string_view path, Value value, std::initializer_list<const char*> from);
  /// Returns the level of the file or the flags that chose the value; 0 for a default.
  int level_of(std::string_view path) const;

 private:
  Config& config_;
  std::map<std::string, int, std::less<>> levels_;
};

}  // namespace trireme
