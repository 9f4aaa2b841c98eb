// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "trireme/base/encoding.h"
#include "trireme/base/export.h"

namespace trireme::detail {

/// The last collectives of a rank in one group.
struct RecentCalls {
  uint64_t last = 0;                 // the number of the last one
  std::vector<uint64_t> digests;     // of the calls up to it
  std::vector<std::string> texts{};  // of the last of these
  TRIREME_FIELDS(last, digests, texts)

  /// Returns "" if it is no longer kept.
  TRIREME_API std::string text(uint64_t number) const;
};

/// Returns the number of the first call that both have kept and that differs.
TRIREME_API std::optional<uint64_t> first_difference(const RecentCalls& a, const RecentCalls& b);

}  // namespace trireme::detail
