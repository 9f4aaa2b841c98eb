// SPDX-License-Identifier: Apache-2.0
#include "trireme/store/memory_store.h"

#include "trireme/base/check.h"

namespace trireme {
namespace {
constexpr size_t kMaxBytes = size_t{256} << 20;
}

MemoryStore::MemoryStore() : MemoryStore(std::make_shared<detail::KeyTable>(kMaxBytes), "memory") {}
MemoryStore::MemoryStore(std::shared_ptr<detail::KeyTable> table, std::string where)
    : table_(std::move(table)), where_(std::move(where)) {}
MemoryStore::~MemoryStore() = default;

detail::KeyTable& MemoryStore::table() const {
  made_in_.check("this store");
  return *table_;
}

void MemoryStore::set(const std::string& key, std::string_view value) { table().set(key, value); }

std::string MemoryStore::get(const std::string& key, Deadline deadline) {
  while (true) {
    wait({key}, deadline);
    if (auto value = table().find(key)) return std::move(*value);  // else deleted in between
  }
}

std::optional<std::string> MemoryStore::try_get(const std::string& key) {
  return table().find(key);
}
int64_t MemoryStore::add(const std::string& key, int64_t delta) { return table().add(key, delta); }
std::string MemoryStore::compare_set(const std::string& key, std::string_view expected,
                                     std::string_view desired) {
  return table().compare_set(key, expected, desired);
}

void MemoryStore::wait(const std::vector<std::string>& keys, Deadline deadline) {
  auto start = Clock::now();
  auto absent = table().wait(keys, deadline);
  trireme::check<Timeout>(absent.empty(), "store {}: {} was not set within {:.1f} s", where_,
                          detail::name_keys(absent), seconds_since(start));
}

std::vector<std::string> MemoryStore::missing(const std::vector<std::string>& keys) {
  return table().missing(keys);
}
bool MemoryStore::delete_key(const std::string& key) { return table().erase(key); }
int64_t MemoryStore::count_keys(std::string_view prefix) { return table().count(prefix); }
void MemoryStore::set_will(const std::string& key, std::string_view value) {
  detail::check_key(key);
  detail::check_value(key, value);
}
std::unique_ptr<Store> MemoryStore::clone(Deadline) {
  made_in_.check("this store");
  return std::make_unique<MemoryStore>(table_, where_);
}

}  // namespace trireme
