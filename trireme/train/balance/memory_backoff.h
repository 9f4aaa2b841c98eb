// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "trireme/base/export.h"
#include "trireme/data/batch.h"
#include "trireme/grad/rounds/round_record.h"
#include "trireme/tensor/state.h"
#include "trireme/train/balance/out_of_memory.h"
#include "trireme/train/step_feature.h"

namespace trireme {

/// A rank that runs out of memory repeats its part of the step in micro-batches of half the size,
/// and keeps that size from then on, down to one sample. Nothing of the step has been sent by then:
/// until a micro-batch size has been through forward and backward once, buckets wait for the end of
/// the rank's part (train/gradients/gradients.h).
///
/// The run ends with a ResourceError if one sample is too much, or if memory runs out at a size
/// that had fitted and some gradients have already been sent. Where Linux overcommits memory, a
/// process is killed instead of getting an error; a limit (ulimit -v, -d) avoids that.
///
/// State: "balance.limits", one for each rank. On another number of ranks they begin anew, which is
/// news.
class TRIREME_API MemoryBackoff final : public StepFeature, public OutOfMemoryPolicy {
 public:
  MemoryBackoff(int rank, int ranks, RoundRecord& record);

  /// Splits the batch into micro-batches that fit this rank's memory, as far as it is known.
  Batch before_backward(Batch batch) override { return cut(batch); }
  int contributions(const Batch& batch) const override;
  /// Runs `compute`, reopening run.gradients for every retry.
  void run(Run& run, const Batch& batch, const Compute& compute) override;
  void when_short(std::function<void()> give_back) override { give_back_ = std::move(give_back); }
  void closed(int64_t step) override;
  /// "rank 1 ran out of memory …"
  std::string news() override;
  /// The largest micro-batch of each rank, in samples; 0 means no limit beyond the deal's.
  const std::vector<int64_t>& limits() const { return limits_; }
  void state(StateVisitor& visitor) override;

 private:
  Batch cut(const Batch& batch) const;

  int rank_;
  RoundRecord& record_;
  int64_t limit_ = 0;   // of this rank
  int64_t proven_ = 0;  // the largest micro-batch that succeeded since memory ran out
  int64_t failed_ = 0;  // the size that did not fit, since the last step
  RoundRecord::Fact limit_fact_, failed_fact_;
  std::vector<int64_t> limits_;
  std::string news_;
  std::function<void()> give_back_;
};

}  // namespace trireme
