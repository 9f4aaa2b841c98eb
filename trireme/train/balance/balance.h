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
  int64_t least = 1;                         // samples of a rank
  int64_t most = 0;                          // 0: no limit
  int loader_depth = LoaderOptions{}.depth;  // batches that a loader may have ahead
};

/// Shares of a step's samples that follow the ranks' throughput (docs/balance.md). Each rank tells
/// its own time with the gradients' record, so all ranks take the same decision from the same
/// numbers, without a call of their own.
///
/// A rank's measure is its seconds for a sample, the median of `every` steps: that of its whole own
/// time (optimizer included), so shares are right when all ranks need equally long between two
/// meetings. State: "balance.*", the same on all ranks.
class TRIREME_API Balance final : public StepFeature {
 public:
  /// Before the first round; the record and the time outlive this object.
  Balance(const BalanceOptions& options, int ranks, RoundRecord& record, OwnTime& time);

  std::shared_ptr<const ShareDeal> deal() const { return deal_; }
  /// Samples of each rank in a step.
  Shares shares(int64_t step) const { return deal_->at(step); }
  void closed(int64_t step) override;
  std::string news() override;
  void state(StateVisitor& visitor) override;
  std::string describe(int64_t step) const override;
  /// Of few ranks each one's samples; of many the least and the most.
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

/// "24/8"; of many ranks "8 to 24".
TRIREME_API std::string shares_text(const Shares& shares);

/// balance.mode throughput: what this configuration asks for, checked against the ranks there are.
TRIREME_API BalanceOptions balance_options(const Config& config, const Batches& batches);
/// Most samples of a micro-batch, of this rank: balance.max_samples, else the micro-batch size.
TRIREME_API int64_t most_at_once(const Config& config, const Batches& batches, int rank);

}  // namespace trireme
