// SPDX-License-Identifier: Apache-2.0
#include "trireme/grad/tuning/bucket_tuning.h"

#include <ATen/ops/empty_like.h>

#include <algorithm>
#include <vector>

#include "trireme/grad/hooks/two_calls.h"
#include "trireme/grad/reducer.h"

namespace trireme {

CommHook scatter_gather_hook() {
  return two_calls([](Group& group, GradBucket& bucket, ReduceOp op) {
    const at::Tensor& flat = bucket.buffer;
    const int64_t n = group.size(), share = (flat.numel() + n - 1) / n;
    std::vector<at::Tensor> parts;
    for (int64_t r = 0; r < n; ++r) {
      const int64_t begin = std::min(flat.numel(), r * share);
      parts.push_back(flat.narrow(0, begin, std::min(share, flat.numel() - begin)));
    }
    const at::Tensor mine = at::empty_like(parts[static_cast<size_t>(group.rank())]);
    const SecondCall gather = [group, parts, mine]() mutable {
      return group.all_gather(parts, mine);
    };
    return std::pair(group.reduce_scatter(mine, parts, op), gather);
  });
}

BucketTuning::BucketTuning(BucketSetting setting, std::optional<BucketTuner> tuner,
                           size_t first_bytes)
    : setting_(std::make_shared<BucketSetting>(tuner ? tuner->setting() : setting)),
      tuner_(std::move(tuner)),
      seconds_(std::make_shared<double>(0)),
      first_bytes_(first_bytes) {}

CommHook BucketTuning::hook() const {
  return [setting = setting_, two = scatter_gather_hook()](Group& group, GradBucket& bucket,
                                                           ReduceOp op) {
    return setting->algorithm == BucketAlgorithm::all_reduce ? group.all_reduce(bucket.buffer, op)
                                                             : two(group, bucket, op);
  };
}

void BucketTuning::attach(RoundRecord& record) {
  fact_ = record.add([seconds = seconds_] { return *seconds; });
}

// What a rank tells in a round is the time from the close before the last to the last: whole steps.
void BucketTuning::closed(Reducer& reducer) {
  const auto now = Clock::now();
  if (tuner_ && !tuner_->done()) {
    const std::vector<double> all = reducer.record().of(fact_);
    const double slowest = *std::max_element(all.begin(), all.end());
    if (slowest > 0) tuner_->took(slowest);
    *setting_ = tuner_->done() ? tuner_->best() : tuner_->setting();
  }
  if (closed_) *seconds_ = std::chrono::duration<double>(now - *closed_).count();
  closed_ = Clock::now();
  if (laid_out_ && *laid_out_ == *setting_) return;
  laid_out_ = *setting_;
  const auto bytes = static_cast<size_t>(setting_->bytes);
  reducer.lay_out({std::min(first_bytes_, bytes), bytes}, setting_->order);
}

}  // namespace trireme
