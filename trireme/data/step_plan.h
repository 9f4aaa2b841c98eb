// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "trireme/base/export.h"
#include "trireme/data/global_batch.h"
#include "trireme/data/loader.h"
#include "trireme/data/share_deal.h"
#include "trireme/data/source.h"
#include "trireme/data/token_steps.h"

namespace trireme {

/// How a run's data is divided into optimizer steps and ranks. The same on every rank; immutable
/// (but for a ShareDeal, which changes on all ranks alike).
class TRIREME_API StepPlan {
 public:
  StepPlan() = default;
  virtual ~StepPlan();
  StepPlan(const StepPlan&) = delete;

  /// The first step that begins in this epoch or a later one. UsageError where there are no epochs.
  virtual int64_t first_step_of(int64_t epoch) const = 0;
  /// What a run that continues with this step, in steps of any size, has to know; nothing where the
  /// caller brings the batches.
  virtual std::optional<DataOrigin> origin_at(int64_t step) const = 0;
  /// Of a step, over all ranks.
  virtual int64_t samples(int64_t step) const = 0;
  /// What makes this rank's batches, for a loader.
  virtual PrefetchingLoader::MakeBatch batches(std::shared_ptr<const DataSource> source, int rank,
                                               int world) const = 0;
  /// For the start line of a run; "": nothing.
  virtual std::string describe() const { return {}; }
};

/// Micro-batches of fixed shape (data/global_batch.h).
TRIREME_API std::unique_ptr<StepPlan> leaf_plan(const GlobalBatchOptions& options,
                                                Deal deal = Deal::blocks);
/// The same steps, in shares that follow the ranks' throughput (data/share_deal.h). most: samples
/// of a micro-batch of this rank.
TRIREME_API std::unique_ptr<StepPlan> share_plan(const GlobalBatchOptions& options,
                                                 std::shared_ptr<const ShareDeal> deal,
                                                 int64_t most);
/// Micro-batches by a budget of tokens (data/token_steps.h).
class TRIREME_API TokenPlan final : public StepPlan {
 public:
  explicit TokenPlan(std::shared_ptr<const TokenSteps> steps) : steps_(std::move(steps)) {}
  int64_t first_step_of(int64_t epoch) const override {
    return steps_->positions().first_step_of(epoch);
  }
  std::optional<DataOrigin> origin_at(int64_t step) const override {
    return steps_->positions().origin_at(step);
  }
  int64_t samples(int64_t step) const override { return steps_->samples(step); }
  PrefetchingLoader::MakeBatch batches(std::shared_ptr<const DataSource> source, int rank,
                                       int world) const override;
  std::string describe() const override;
  const TokenSteps& steps() const { return *steps_; }

 private:
  std::shared_ptr<const TokenSteps> steps_;
};
/// The caller brings batches of its own: `samples` in each step, no epochs, and batches() is a
/// UsageError.
TRIREME_API std::unique_ptr<StepPlan> callers_plan(int64_t samples);

}  // namespace trireme
