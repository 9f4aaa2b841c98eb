// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "trireme/base/export.h"
#include "trireme/store/store.h"

namespace trireme::launch {

/// What launchers of several nodes tell all others, one round after the other. Each round is a text
/// of each of them under "<name>/<round>/<node>", of which two rounds are there at most.
class TRIREME_API HearAll {
 public:
  HearAll(Store& store, std::string name, int node, int nodes);
  /// All nodes call it equally often. nullopt: `ends` said so, or some said nothing until then.
  /// What the store throws.
  std::optional<std::vector<std::string>> round(const std::string& ours, Deadline deadline,
                                                const std::function<bool()>& ends);

 private:
  std::string key(int64_t round, int node) const;

  Store& store_;
  const std::string name_;
  const int node_, nodes_;
  int64_t round_ = 0;
};

}  // namespace trireme::launch
