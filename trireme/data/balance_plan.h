// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "trireme/base/export.h"

// Plan: how many samples of a step each rank gets when ranks are not equally fast. Pure: numbers
// in, numbers out, the same on every rank that is given the same.
namespace trireme {

using Shares = std::vector<int64_t>;  // samples of a step, by rank

struct BalanceInputs {
  std::vector<double> seconds_per_sample;  // measured, by rank; above 0
  int64_t samples = 0;                     // of a step, over all ranks
  int64_t least = 1;                       // of a rank
  int64_t most = 0;                        // of a rank; 0: no limit
};

/// Parts of a step as equal as they go; the first ranks have one more. UsageError for fewer samples
/// than ranks × least.
TRIREME_API Shares equal_shares(int64_t samples, int ranks, int64_t least = 1);

/// Shares with the smallest time of the slowest rank, and of those the ones in which nobody could
/// take a sample over in less time than it takes now. A rank that needs longer for a sample never
/// has more of them; of equals the first have one more. UsageError where limits leave no room.
TRIREME_API Shares balanced_shares(const BalanceInputs& in);

/// What a step takes: the time of the slowest rank.
TRIREME_API double slowest(const Shares& shares, const std::vector<double>& seconds_per_sample);

/// balanced_shares, where they promise a step shorter by more than `hysteresis` (a part of 1);
/// else `now`.
TRIREME_API Shares next_shares(const Shares& now, const BalanceInputs& in, double hysteresis);

/// A rank's share as micro-batches of at most `most` samples: as few as go, as equal as they go,
/// the larger ones first.
TRIREME_API std::vector<int64_t> cut_share(int64_t samples, int64_t most);

}  // namespace trireme
