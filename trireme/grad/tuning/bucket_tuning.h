// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <optional>

#include "trireme/base/clock.h"
#include "trireme/base/export.h"
#include "trireme/grad/comm_hook.h"
#include "trireme/grad/rounds/round_record.h"
#include "trireme/grad/tuning/bucket_tuner.h"

namespace trireme {

class Reducer;

/// Tunes a reducer's buckets during training (grad/tuning/bucket_tuner.h). Ranks exchange the time
/// of each step in the round's record; the slowest counts, so all ranks arrive at the same setting
/// in the same step. On backends whose sums depend on bucket boundaries, a different setting
/// changes the low-order bits of gradients; the `local` backend's sums do not depend on them. Use
/// from one thread; it must live as long as the reducer.
class TRIREME_API BucketTuning {
 public:
  /// `tuner`: nullopt for a fixed setting. The first bucket has at most `first_bytes`, so that
  /// communication starts early.
  BucketTuning(BucketSetting setting, std::optional<BucketTuner> tuner, size_t first_bytes);
  /// The hook that reduces buckets.
  CommHook hook() const;
  void attach(RoundRecord& record);
  /// Call it after each close(): it arranges the buckets for the next step.
  void closed(Reducer& reducer);

  const BucketSetting& setting() const { return *setting_; }
  /// nullptr if the setting is fixed.
  const BucketTuner* tuner() const { return tuner_ ? &*tuner_ : nullptr; }

 private:
  std::shared_ptr<BucketSetting> setting_;  // shared with the hook
  std::optional<BucketTuner> tuner_;
  std::shared_ptr<double> seconds_;
  size_t fact_ = 0;
  std::optional<Clock::time_point> closed_;
  std::optional<BucketSetting> laid_out_;
  const size_t first_bytes_;
};

/// Computes the sum or mean in two calls, reduce_scatter and all_gather; the bits are those of
/// all_reduce if the backend's reductions have a fixed order. A hook serves one rank and one
/// reducer.
TRIREME_API CommHook scatter_gather_hook();

}  // namespace trireme
