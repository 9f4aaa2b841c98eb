// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <mutex>
#include <set>
#include <string>
#include <string_view>

namespace trireme {

/// Which keys were read from the copies of a configuration that Config::noting() made: tests ask
/// whether a key that is accepted has a reader. A key that was read as a part of its section
/// counts. From any thread.
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
