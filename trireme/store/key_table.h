// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/base/clock.h"

namespace trireme::detail {

/// A decimal number and what is added to it. UsageError where it is no number or would leave 64
/// bits.
int64_t sum_of(const std::string& key, std::string_view text, int64_t delta);

/// The table itself: what a server serves and MemoryStore uses directly. Safe from any thread.
/// Errors are Store's.
class KeyTable {
 public:
  explicit KeyTable(size_t max_bytes) : max_bytes_(max_bytes) {}

  void set(const std::string& key, std::string_view value);
  std::optional<std::string> find(const std::string& key) const;
  int64_t add(const std::string& key, int64_t delta);
  std::string compare_set(const std::string& key, std::string_view expected,
                          std::string_view desired);
  bool erase(const std::string& key);

  /// Keeps room, so that a later set_in_room() of the same finds it. Throws what set() would.
  /// Returns its bytes.
  size_t keep_room(const std::string& key, std::string_view value);
  void give_back_room(size_t bytes);
  void set_in_room(const std::string& key, std::string_view value, size_t room);

  int64_t count(std::string_view prefix) const;
  std::vector<std::string> missing(const std::vector<std::string>& keys) const;
  /// The keys that were still missing at the deadline.
  std::vector<std::string> wait(const std::vector<std::string>& keys, Deadline deadline) const;

  /// Called with each key that got a value, under the table's lock: it must be quick and not call
  /// back. One at a time; {} ends it, and after that it is not running.
  void on_change(std::function<void(const std::string&)> changed);

 private:
  std::vector<std::string> missing_locked(const std::vector<std::string>& keys) const;
  void set_locked(const std::string& key, std::string_view value);
  void check_room_locked(size_t less, size_t more) const;

  const size_t max_bytes_;
  mutable std::mutex mutex_;
  mutable std::condition_variable arrived_;
  std::map<std::string, std::string, std::less<>> values_;
  size_t bytes_ = 0;
  std::function<void(const std::string&)> changed_;
};

}  // namespace trireme::detail
