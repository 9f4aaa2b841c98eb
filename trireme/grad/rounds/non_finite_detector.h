// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>

#include "trireme/base/export.h"
#include "trireme/grad/comm_hook.h"
#include "trireme/grad/rounds/round_record.h"

namespace trireme {

/// Which rank brought a NaN or an infinity: looks at each gradient before it is reduced (in
/// the copy into its bucket; one that was accumulated there, or set by somebody, by a pass over its
/// memory), and tells the others through the round's record. After the reduction it is
/// everybody's.
class TRIREME_API NonFiniteDetector {
 public:
  NonFiniteDetector();
  /// The hook that looks, then calls `inner` (empty: all_reduce).
  CommHook around(CommHook inner);
  /// Before the first round, on every rank.
  void attach(RoundRecord& record);

  struct Found {
    int rank = -1;         // the lowest one; -1: none
    size_t parameter = 0;  // its first one, in bucket order
  };
  /// After a round: the same on every rank.
  Found found(const RoundRecord& record) const;

 private:
  std::shared_ptr<double> first_;  // of this rank in this round: the parameter's index + 1, or 0
  RoundRecord::Fact fact_ = 0;
};

}  // namespace trireme
