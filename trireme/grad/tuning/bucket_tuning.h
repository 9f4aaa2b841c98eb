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

/// Tunes a reducer's buckets while it trains (grad/tuning/bucket_tuner.h). Ranks tell each other
/// with the round's record how long a step took; the slowest counts, so all come to the same
/// setting in the same step. Gradients have other bits under another setting where the backend's
/// sums depend on the cut; with `local` they have not. One thread; lives as long as the reducer.
class TRIREME_API BucketTuning {
 public:
  /// `tuner`: none where the setting is given and stays. The first bucket is of at most
  /// `first_bytes`, so that communication starts early.
  BucketTuning(BucketSetting setting, std::optional<BucketTuner> tuner, size_t first_bytes);
  /// What reduces a bucket.
  CommHook hook() const;
  void attach(RoundRecord& record);
  /// After each close(): lays buckets out as the next step is to have them.
  void closed(Reducer& reducer);

  const BucketSetting& setting() const { return *setting_; }
  /// Null: nothing is tried.
  const BucketTuner* tuner() const { return tuner_ ? &*tuner_ : nullptr; }

 private:
  std::shared_ptr<BucketSetting> setting_;  // the hook's, too
  std::optional<BucketTuner> tuner_;
  std::shared_ptr<double> seconds_;
  size_t fact_ = 0;
  std::optional<Clock::time_point> closed_;
  std::optional<BucketSetting> laid_out_;
  const size_t first_bytes_;
};

/// The sum or mean in two calls, reduce_scatter and all_gather; the bits of all_reduce where the
/// backend's reductions have one order. For one rank and one reducer.
TRIREME_API CommHook scatter_gather_hook();

}  // namespace trireme
