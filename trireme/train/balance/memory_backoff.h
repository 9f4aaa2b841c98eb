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

/// A rank that runs out of memory does its part of the step again, in micro-batches of half the
/// size, and stays with those; down to one sample. Nothing of a step has left the rank then: until
/// a size of micro-batch has been through forward and backward once, buckets wait for the end of
/// the rank's part (train/gradients/gradients.h).
///
/// What cannot be mended ends the run with a ResourceError: one sample is too much, or memory is
/// lost in a size that had fitted and a part of the gradients has left. On Linux that promises
/// memory that is not there (overcommit) a process is killed instead of told; a limit (ulimit -v,
/// -d) makes it an error. State: "balance.limits".
class TRIREME_API MemoryBackoff final : public StepFeature, public OutOfMemoryPolicy {
 public:
  MemoryBackoff(int rank, int ranks, RoundRecord& record);

  /// The same samples in micro-batches that this rank has memory for, as far as it knows.
  Batch before_backward(Batch batch) override { return cut(batch); }
  int contributions(const Batch& batch) const override;
  /// run.gradients are opened again as often as it takes.
  void run(Run& run, const Batch& batch, const Compute& compute) override;
  void when_short(std::function<void()> give_back) override { give_back_ = std::move(give_back); }
  void closed(int64_t step) override;
  /// "rank 1 ran out of memory …"
  std::string news() override;
  /// Most samples of a micro-batch, of each rank; 0: as the deal says.
  const std::vector<int64_t>& limits() const { return limits_; }
  void state(StateVisitor& visitor) override;

 private:
  Batch cut(const Batch& batch) const;

  int rank_;
  RoundRecord& record_;
  int64_t limit_ = 0;   // of this rank
  int64_t proven_ = 0;  // the largest micro-batch that went through since memory was short
  int64_t failed_ = 0;  // the size that did not fit, since the last step
  RoundRecord::Fact limit_fact_, failed_fact_;
  std::vector<int64_t> limits_;
  std::string news_;
  std::function<void()> give_back_;
};

}  // namespace trireme
