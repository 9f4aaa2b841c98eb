// SPDX-License-Identifier: Apache-2.0
#include "trireme/store/store.h"

#include <utility>

#include "trireme/base/check.h"

namespace trireme {

Store::~Store() = default;

PrefixStore::PrefixStore(std::shared_ptr<Store> inner, std::string prefix)
    : inner_(std::move(inner)), prefix_(std::move(prefix) + "/") {}

std::string PrefixStore::under(const std::string& key) const {
  detail::check_key(key);
  return prefix_ + key;
}

std::vector<std::string> PrefixStore::under(const std::vector<std::string>& keys) const {
  std::vector<std::string> out;
  out.reserve(keys.size());
  for (const auto& key : keys) out.push_back(under(key));
  return out;
}

void PrefixStore::set(const std::string& key, std::string_view value) {
  inner_->set(under(key), value);
}
std::string PrefixStore::get(const std::string& key, Deadline deadline) {
  return inner_->get(under(key), deadline);
}
std::optional<std::string> PrefixStore::try_get(const std::string& key) {
  return inner_->try_get(under(key));
}
int64_t PrefixStore::add(const std::string& key, int64_t delta) {
  return inner_->add(under(key), delta);
}
std::string PrefixStore::compare_set(const std::string& key, std::string_view expected,
                                     std::string_view desired) {
  return inner_->compare_set(under(key), expected, desired);
}
void PrefixStore::wait(const std::vector<std::string>& keys, Deadline deadline) {
  inner_->wait(under(keys), deadline);
}
std::vector<std::string> PrefixStore::missing(const std::vector<std::string>& keys) {
  auto out = inner_->missing(under(keys));
  for (auto& key : out) key.erase(0, prefix_.size());
  return out;
}
bool PrefixStore::delete_key(const std::string& key) { return inner_->delete_key(under(key)); }
int64_t PrefixStore::count_keys(std::string_view prefix) {
  return inner_->count_keys(prefix_ + std::string(prefix));
}
void PrefixStore::set_will(const std::string& key, std::string_view value) {
  inner_->set_will(under(key), value);
}
void PrefixStore::clear_will() { inner_->clear_will(); }
std::unique_ptr<Store> PrefixStore::clone(Deadline deadline) {
  auto prefix = prefix_.substr(0, prefix_.size() - 1);
  return std::make_unique<PrefixStore>(inner_->clone(deadline), std::move(prefix));
}
std::string PrefixStore::describe() const { return inner_->describe() + " under " + prefix_; }

namespace detail {

void check_key(const std::string& key) {
  check<UsageError>(!key.empty() && key.size() <= Store::kMaxKeyBytes,
                    "a key of the store has 1 to {} bytes, not {}", Store::kMaxKeyBytes,
                    key.size());
}

void check_keys(const std::vector<std::string>& keys) {
  check<UsageError>(keys.size() <= kMaxKeysAtOnce, "{} keys in one call to the store, at most {}",
                    keys.size(), kMaxKeysAtOnce);
  for (const auto& key : keys) check_key(key);
}

void check_value(const std::string& key, std::string_view value) {
  check<UsageError>(value.size() <= Store::kMaxValueBytes,
                    "the value of '{}' has {} bytes; the store takes at most {}", key, value.size(),
                    Store::kMaxValueBytes);
}

std::string name_keys(const std::vector<std::string>& keys) {
  constexpr size_t kNamed = 8;
  std::string out;
  for (size_t i = 0; i < keys.size() && i < kNamed; ++i)
    out += fmt::format("{}'{}'", i ? ", " : "", keys[i]);
  if (keys.size() > kNamed) out += fmt::format(" and {} more", keys.size() - kNamed);
  return out;
}

}  // namespace detail
}  // namespace trireme
