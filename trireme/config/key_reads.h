// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <mutex>
#include <set>
#include <string>
#include <string_view>

namespace trireme {

/// Records which keys were read from the copies that Config::noting() made, so that tests can check
/// that every accepted key has a reader. Reading a section counts as reading its keys. Thread-safe.
class KeyReads {
 public:
  void add(std::string_view path) {
    const std::lock_guard lock(mutex_);
    paths_.emplace(path);
  }
  std::set<std::string, std::less<>> paths() const {
    const std::lock_guard lock(mutex_);
    return paths_;
  }

 private:
  mutable std::mutex mutex_;
  std::set<std::string, std::less<>> paths_;
};

}  // namespace trireme
