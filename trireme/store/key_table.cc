// SPDX-License-Identifier: Apache-2.0
#include "trireme/store/key_table.h"

#include <charconv>

#include "trireme/base/check.h"
#include "trireme/store/store.h"

namespace trireme::detail {
namespace {

constexpr size_t kOverhead = 128;  // of a key in the map, roughly: empty values are not free

size_t cost(const std::string& key, std::string_view value) {
  return value.size() + key.size() + kOverhead;
}

}  // namespace

int64_t sum_of(const std::string& key, std::string_view text, int64_t delta) {
  int64_t sum = 0;
  auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), sum);
  check<UsageError>(code == std::errc() && end == text.data() + text.size(),
                    "add: the value of '{}' is not a whole number", key);
  check<UsageError>(!__builtin_add_overflow(sum, delta, &sum), "add: '{}' would leave 64 bits",
                    key);
  return sum;
}

void KeyTable::check_room_locked(size_t less, size_t more) const {
  check<ResourceError>(
      bytes_ - less + more <= max_bytes_,
      "the store is full: {} bytes held, {} allowed. Delete keys that are no longer needed", bytes_,
      max_bytes_);
}

size_t KeyTable::keep_room(const std::string& key, std::string_view value) {
  check_key(key);
  check_value(key, value);
  std::lock_guard lock(mutex_);
  size_t room = cost(key, value);
  check_room_locked(0, room);
  bytes_ += room;
  return room;
}

void KeyTable::give_back_room(size_t bytes) {
  std::lock_guard lock(mutex_);
  bytes_ -= bytes;
}

void KeyTable::set_in_room(const std::string& key, std::string_view value, size_t room) {
  std::lock_guard lock(mutex_);
  bytes_ -= room;
  set_locked(key, value);
}

void KeyTable::set_locked(const std::string& key, std::string_view value) {
  check_key(key);
  check_value(key, value);
  auto at = values_.find(key);
  size_t before = at == values_.end() ? 0 : cost(key, at->second);
  size_t after = cost(key, value);
  check_room_locked(before, after);
  if (at == values_.end())
    values_.emplace(key, value);
  else
    at->second.assign(value);
  bytes_ = bytes_ - before + after;
  if (changed_) changed_(key);
  arrived_.notify_all();
}

void KeyTable::set(const std::string& key, std::string_view value) {
  std::lock_guard lock(mutex_);
  set_locked(key, value);
}

std::optional<std::string> KeyTable::find(const std::string& key) const {
  std::lock_guard lock(mutex_);
  auto at = values_.find(key);
  return at == values_.end() ? std::nullopt : std::optional(at->second);
}

int64_t KeyTable::add(const std::string& key, int64_t delta) {
  std::lock_guard lock(mutex_);
  auto at = values_.find(key);
  int64_t sum = sum_of(key, at == values_.end() ? std::string_view("0") : at->second, delta);
  set_locked(key, std::to_string(sum));
  return sum;
}

std::string KeyTable::compare_set(const std::string& key, std::string_view expected,
                                  std::string_view desired) {
  std::lock_guard lock(mutex_);
  auto at = values_.find(key);
  std::string_view now = at == values_.end() ? std::string_view() : at->second;
  if (now != expected) return std::string(now);
  set_locked(key, desired);
  return std::string(desired);
}

bool KeyTable::erase(const std::string& key) {
  std::lock_guard lock(mutex_);
  auto at = values_.find(key);
  if (at == values_.end()) return false;
  bytes_ -= cost(key, at->second);
  values_.erase(at);
  return true;
}

int64_t KeyTable::count(std::string_view prefix) const {
  std::lock_guard lock(mutex_);
  if (prefix.empty()) return static_cast<int64_t>(values_.size());
  int64_t n = 0;
  for (auto at = values_.lower_bound(prefix); at != values_.end() && at->first.starts_with(prefix);
       ++at)
    ++n;
  return n;
}

std::vector<std::string> KeyTable::missing_locked(const std::vector<std::string>& keys) const {
  std::vector<std::string> out;
  for (const auto& key : keys)
    if (!values_.contains(key)) out.push_back(key);
  return out;
}

std::vector<std::string> KeyTable::missing(const std::vector<std::string>& keys) const {
  std::lock_guard lock(mutex_);
  return missing_locked(keys);
}

std::vector<std::string> KeyTable::wait(const std::vector<std::string>& keys,
                                        Deadline deadline) const {
  check_keys(keys);
  std::unique_lock lock(mutex_);
  while (true) {
    auto out = missing_locked(keys);
    if (out.empty() || deadline.expired()) return out;
    arrived_.wait_for(lock, std::chrono::milliseconds(deadline.poll_ms(60'000)));
  }
}

void KeyTable::on_change(std::function<void(const std::string&)> changed) {
  std::lock_guard lock(mutex_);
  changed_ = std::move(changed);
}

}  // namespace trireme::detail
