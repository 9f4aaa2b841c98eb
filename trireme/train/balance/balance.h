// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "trireme/base/export.h"
#include "trireme/config/config.h"
#include "trireme/data/share_deal.h"
#include "trireme/grad/rounds/round_record.h"
#include "trireme/tensor/state.h"
#include "trireme/train/balance/own_time.h"
#include "trireme/train/step_feature.h"

namespace trireme {

struct BalanceOptions {
  int64_t samples = 0;                       // of a step, over all ranks
  int64_t every = 10;                        // steps measured before a decision
  double hysteresis = 0.05;                  // a step must become shorter by more than this part
  int64_t least = 1;                         // fewest samples of a rank
  int64_t most = 0;                          // 0: no limit
  int loader_depth = LoaderOptions{}.depth;  // batches that a loader may have ahead
};

/// Shares of a step's samples that follow the ranks' throughput (docs/balance.md). Each rank
/// reports its own time with the gradients' record, so all ranks make the same decision from the
/// same numbers, without an extra collective.
///
/// A rank's measure is its seconds per sample, the median over `every` steps of its whole own time
/// (optimizer included): shares are right when all ranks need equally long between two collectives.
/// State: "balance.*", the same on all ranks.
class TRIREME_API Balance final : public StepFeature {
 public:
  /// Must be made before the first round. `record` and `time` must outlive this object.
  Balance(const BalanceOptions& options, int ranks, RoundRecord& record, OwnTime& time);

  std::shared_ptr<const ShareDeal> deal() const { return deal_; }
  /// The number of samples of each rank in a step.
  Shares shares(int64_t step) const { return deal_->at(step); }
  void closed(int64_t step) override;
  std::string news() override;
  void state(StateVisitor& visitor) override;
  std::string describe(int64_t step) const override;
  /// Reports the samples of each rank, or the least and the most if there are many ranks.
  void metrics(int64_t step, const AddMetric& add) const override;

 private:
  void decide(int64_t step, const std::vector<double>& seconds);
  std::string window_text() const;
  void restore_window(const std::string& text);

  BalanceOptions options_;
  size_t ranks_;
  RoundRecord& record_;
  RoundRecord::Fact time_;
  std::shared_ptr<ShareDeal> deal_;
  std::vector<std::vector<double>> window_;  // seconds for a sample: by step, by rank
  std::string news_;
};

/// Returns "24/8", or "8 to 24" if there are many ranks.
TRIREME_API std::string shares_text(const Shares& shares);

/// Returns the options for balance.mode throughput, checked against the number of ranks.
TRIREME_API BalanceOptions balance_options(const Config& config, const Batches& batches);
/// Returns this rank's largest micro-batch in samples: balance.max_samples, else the micro-batch
/// size.
TRIREME_API int64_t most_at_once(const Config& config, const Batches& batches, int rank);

}  // namespace trireme
