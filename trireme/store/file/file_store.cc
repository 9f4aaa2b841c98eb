// SPDX-License-Identifier: Apache-2.0
#include "trireme/store/file/file_store.h"

#include "trireme/base/check.h"
#include "trireme/net/connect.h"
#include "trireme/store/file/file_lock.h"
#include "trireme/store/key_table.h"

// What the calls mean. The file itself is file_store_log.cc, coming and going
// file_store_members.cc.
namespace trireme {

using detail::FileLock;
using detail::LockMode;
using detail::OneUser;
using Type = detail::FileRecord::Type;

namespace {

detail::FileRecord put(const std::string& key, std::string_view value) {
  return {Type::put, key, std::string(value), 0, 0, 0};
}

}  // namespace

/// Runs `make` on the state of now, which nobody else can change meanwhile.
template <class Change>
auto FileStore::change(const Change& make) {
  OneUser guard(use_);
  carry_out_wills();
  FileLock lock(fd_.get(), detail::kLogLock, LockMode::exclusive, Deadline::after(answer_limit_),
                path_);
  catch_up();
  return make();
}

void FileStore::look() {
  carry_out_wills();
  FileLock lock(fd_.get(), detail::kLogLock, LockMode::shared, Deadline::after(answer_limit_),
                path_);
  catch_up();
}

void FileStore::set(const std::string& key, std::string_view value) {
  detail::check_key(key);
  detail::check_value(key, value);
  change([&] { append(put(key, value)); });
}

int64_t FileStore::add(const std::string& key, int64_t delta) {
  detail::check_key(key);
  return change([&] {
    int64_t sum = detail::sum_of(key, state_.find(key).value_or("0"), delta);
    append(put(key, std::to_string(sum)));
    return sum;
  });
}

std::string FileStore::compare_set(const std::string& key, std::string_view expected,
                                   std::string_view desired) {
  detail::check_key(key);
  detail::check_value(key, desired);
  return change([&]() -> std::string {
    auto now = state_.find(key).value_or("");
    if (now != expected) return now;
    append(put(key, desired));
    return std::string(desired);
  });
}

bool FileStore::delete_key(const std::string& key) {
  detail::check_key(key);
  return change([&] {
    if (!state_.values().contains(key)) return false;
    append({Type::erase, key, "", 0, 0, 0});
    return true;
  });
}

void FileStore::set_will(const std::string& key, std::string_view value) {
  detail::check_key(key);
  detail::check_value(key, value);
  change([&] { append({Type::will, key, std::string(value), number_, 0, 0}); });
  has_will_ = true;
}

void FileStore::clear_will() {
  if (!has_will_) return;
  change([&] { append({Type::will, "", "", number_, 0, 0}); });
  has_will_ = false;
}

std::optional<std::string> FileStore::try_get(const std::string& key) {
  detail::check_key(key);
  OneUser guard(use_);
  look();
  return state_.find(key);
}

std::string FileStore::get(const std::string& key, Deadline deadline) {
  detail::check_key(key);
  OneUser guard(use_);
  wait_for({key}, deadline);
  return state_.find(key).value();
}

std::vector<std::string> FileStore::missing_now(const std::vector<std::string>& keys) const {
  std::vector<std::string> out;
  for (const auto& key : keys)
    if (!state_.values().contains(key)) out.push_back(key);
  return out;
}

void FileStore::wait(const std::vector<std::string>& keys, Deadline deadline) {
  detail::check_keys(keys);
  OneUser guard(use_);
  wait_for(keys, deadline);
}

/// Afterwards state_ has them all.
void FileStore::wait_for(const std::vector<std::string>& keys, Deadline deadline) {
  auto start = Clock::now();
  net::BackOff back_off(std::chrono::milliseconds(1), std::chrono::milliseconds(50));
  while (true) {
    look();
    auto absent = missing_now(keys);
    if (absent.empty()) return;
    trireme::check<Timeout>(back_off.pause(deadline), "store {}: {} was not set within {:.1f} s",
                            describe(), detail::name_keys(absent), seconds_since(start));
  }
}

std::vector<std::string> FileStore::missing(const std::vector<std::string>& keys) {
  detail::check_keys(keys);
  OneUser guard(use_);
  look();
  return missing_now(keys);
}

int64_t FileStore::count_keys(std::string_view prefix) {
  OneUser guard(use_);
  look();
  int64_t n = 0;
  const auto& values = state_.values();
  for (auto at = values.lower_bound(prefix); at != values.end() && at->first.starts_with(prefix);
       ++at)
    ++n;
  return n;
}

}  // namespace trireme
