// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>

#include "trireme/base/export.h"
#include "trireme/grad/comm_hook.h"
#include "trireme/grad/rounds/non_finite.h"
#include "trireme/grad/rounds/round_record.h"

namespace trireme {

/// Finds the rank that has a NaN or an infinity: it looks at each gradient before it is reduced (as
/// it is copied into its bucket; one that was accumulated there, or set by other code, in a pass
/// over its memory), and informs the other ranks through the round's record. After the reduction
/// every rank would have it.
class TRIREME_API NonFiniteDetector {
 public:
  NonFiniteDetector();
  /// A hook that looks at the bucket and then calls `inner` (empty: all_reduce).
  CommHook around(CommHook inner);
  /// Before the first round, on every rank.
  void attach(RoundRecord& record);

  using Found = NonFinite;
  /// After a round: the same on every rank.
  Found found(const RoundRecord& record) const;

 private:
  std::shared_ptr<FirstNonFinite> first_;  // this rank's, in this round
  RoundRecord::Fact fact_ = 0;
};

}  // namespace trireme
