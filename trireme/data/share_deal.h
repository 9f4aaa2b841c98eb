// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "trireme/base/export.h"
#include "trireme/data/balance_plan.h"
#include "trireme/data/loader.h"

namespace trireme {

/// Which part of each step's samples is whose, while that changes. Step s holds samples [sB,
/// (s+1)B) of the run's order, as without balance (data/global_batch.h): ranks have consecutive
/// ranges of it, so a change of shares loses and repeats none.
///
/// Every rank makes the same changes. A loader prepares steps ahead: a change holds from a step on
/// that none has begun (`first_free_step`). Threads: any.
class TRIREME_API ShareDeal {
 public:
  explicit ShareDeal(Shares shares);

  struct Range {
    int64_t begin = 0, count = 0;  // of the step's samples
  };
  Range range(int64_t step, int rank) const;
  Shares at(int64_t step) const;
  /// Of the newest change, whether it holds already or not.
  Shares newest() const;
  /// The step from which on the newest change holds.
  int64_t since() const;
  /// UsageError for another number of ranks or samples, or a step before an earlier change.
  void change(int64_t from_step, Shares shares);
  /// Steps before this one will not be asked for again.
  void forget_before(int64_t step);

  /// "0:16,16 43:24,8", and back: nothing changes where it is Corrupt. False: of another number of
  /// ranks or samples.
  std::string text() const;
  bool restore(const std::string& text);

  /// The first step that a loader of that depth cannot have begun when it has given step s.
  static int64_t first_free_step(int64_t s, int depth) { return s + depth + 1; }

 private:
  struct Change {
    int64_t from;
    Shares shares;
  };
  const Change& holding(int64_t step) const;

  mutable std::mutex mutex_;
  std::vector<Change> changes_;  // the first holds from the beginning
};

/// make(step) = this rank's share of the step, in micro-batches of at most `most` samples, read
/// from the source.
TRIREME_API PrefetchingLoader::MakeBatch share_batches(std::shared_ptr<const DataSource> source,
                                                       const GlobalBatch& plan, int rank,
                                                       std::shared_ptr<const ShareDeal> deal,
                                                       int64_t most);

}  // namespace trireme
