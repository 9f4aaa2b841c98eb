// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <unordered_map>
#include <utility>

#include "trireme/base/export.h"

namespace trireme::net {

/// The connections of a server that have not proved who they are, in the order in which they give
/// way to newcomers: first those that have their refusal, then those that have said nothing, then
/// those that have named the job; among equals the oldest. So a flood of silent connections does
/// not push out a rank between its two messages. Ids grow with time.
class TRIREME_API Strangers {
 public:
  enum class Standing { refused, silent, greeted };

  /// New here, or further than before.
  void put(uint64_t id, Standing standing);
  void remove(uint64_t id);
  size_t size() const { return standing_.size(); }
  /// Who gives way; nullopt when nobody is here.
  std::optional<uint64_t> first_to_go() const;

 private:
  std::unordered_map<uint64_t, Standing> standing_;
  std::set<std::pair<Standing, uint64_t>> order_;
};

}  // namespace trireme::net
