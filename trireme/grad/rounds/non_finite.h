// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include "trireme/grad/rounds/round_record.h"

namespace trireme {

/// The first NaN or infinity among the gradients of a round, the same on every rank.
struct NonFinite {
  int rank = -1;         // the lowest rank that has one; -1: none
  size_t parameter = 0;  // the first such parameter of that rank
};

/// From a fact of the record by which each rank gives the index of its first such parameter + 1, or
/// 0 if it has none.
inline NonFinite first_non_finite(const RoundRecord& record, RoundRecord::Fact fact) {
  const auto first = record.of(fact);
  for (size_t r = 0; r < first.size(); ++r)
    if (first[r] != 0) return {static_cast<int>(r), static_cast<size_t>(first[r]) - 1};
  return {};
}

}  // namespace trireme
