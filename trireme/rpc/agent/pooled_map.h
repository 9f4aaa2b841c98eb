// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

namespace trireme::rpc::detail {

/// Values by number. It keeps the memory of some that are gone for those that come next, so that
/// calls which come and go allocate nothing here.
template <class T>
class PooledMap {
 public:
  static constexpr size_t kMostSpare = 256;

  void put(uint64_t id, T value) {
    if (spare_.empty()) {
      map_.emplace(id, std::move(value));
      return;
    }
    auto node = std::move(spare_.back());
    spare_.pop_back();
    node.key() = id;
    node.mapped() = std::move(value);
    map_.insert(std::move(node));
  }
  T* find(uint64_t id) {
    const auto found = map_.find(id);
    return found == map_.end() ? nullptr : &found->second;
  }
  std::optional<T> take(uint64_t id) {
    auto node = map_.extract(id);
    if (!node) return std::nullopt;
    std::optional<T> value(std::move(node.mapped()));
    if (spare_.size() < kMostSpare) {
      node.mapped() = T();
      spare_.push_back(std::move(node));
    }
    return value;
  }
  /// All of them; it is empty then.
  std::unordered_map<uint64_t, T> take_all() { return std::exchange(map_, {}); }
  size_t size() const { return map_.size(); }
  auto begin() const { return map_.begin(); }
  auto end() const { return map_.end(); }

 private:
  using Map = std::unordered_map<uint64_t, T>;
  Map map_;
  std::vector<typename Map::node_type> spare_;
};

}  // namespace trireme::rpc::detail
