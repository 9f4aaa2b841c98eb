// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>

#include "trireme/base/check.h"
#include "trireme/tensor/state.h"

namespace trireme::detail {

/// Inside shard: inner optimizers have values in common ("optim.step"). The visitor meets each name
/// once; what it leaves there goes to all.
class DedupStateVisitor final : public StateVisitor {
 public:
  explicit DedupStateVisitor(StateVisitor& visitor) : visitor_(visitor) {}
  void tensor(const Slice& slice, at::Tensor local) override {
    if (!values_only_) visitor_.tensor(slice, std::move(local));
  }
  void value(const std::string& name, int64_t& v) override { once(ints_, name, v); }
  void value(const std::string& name, double& v) override { once(doubles_, name, v); }
  void value(const std::string& name, std::string& v) override { once(texts_, name, v); }
  /// The visitor is done with; what it has left is still handed on.
  void values_only() { values_only_ = true; }

 private:
  template <class T>
  void once(std::map<std::string, std::pair<T, T>>& seen, const std::string& name, T& v) {
    const auto [it, is_new] = seen.try_emplace(name, v, v);
    auto& [before, after] = it->second;
    if (is_new) {
      if (!values_only_) visitor_.value(name, v);
      after = v;
      return;
    }
    check<UsageError>(v == before || v == after,
                      "offload: the value '{}' differs between sub-groups of parameters: this "
                      "optimizer cannot be offloaded",
                      name);
    v = after;
  }

  StateVisitor& visitor_;
  bool values_only_ = false;
  std::map<std::string, std::pair<int64_t, int64_t>> ints_;
  std::map<std::string, std::pair<double, double>> doubles_;
  std::map<std::string, std::pair<std::string, std::string>> texts_;
};

}  // namespace trireme::detail
