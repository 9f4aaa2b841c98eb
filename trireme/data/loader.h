// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>

#include "trireme/base/clock.h"
#include "trireme/base/export.h"
#include "trireme/data/batch.h"
#include "trireme/data/global_batch.h"
#include "trireme/data/source.h"

namespace trireme {

struct LoaderOptions {
  int64_t first_step = 0;   // resume: the step to go on from
  bool background = false;  // true: threads prepare batches ahead, for ranks with cores to spare
  int threads = 1;          // so many
  int depth = 2;  // batches ahead, and at most so many under way: as many as threads, or more
  Duration timeout = std::chrono::minutes(10);  // of next(), for a data source that hangs
};

/// The batches of steps first_step, first_step + 1, … in order, prepared by `make(step)`: ahead, on
/// threads of its own, or in next() itself. Its whole position is the step, so there is nothing to
/// save. With several threads `make` runs for several steps at once.
///
/// next() rethrows what `make` threw, at the step where it threw, and again if called again. Throws
/// Timeout when the batch that is next is not there after `timeout`. The destructor stops the
/// threads after the batches they are at. One thread may use a loader; `make` runs on others.
class TRIREME_API PrefetchingLoader {
 public:
  using MakeBatch = std::function<Batch(int64_t step)>;
  explicit PrefetchingLoader(MakeBatch make, const LoaderOptions& options = {});
  ~PrefetchingLoader();
  PrefetchingLoader(PrefetchingLoader&&) noexcept;
  PrefetchingLoader& operator=(PrefetchingLoader&&) noexcept;

  Batch next();
  /// The step that next() will give.
  int64_t step() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// make(step) = this rank's leaves of the step, read from the source; samples = positions in the
/// run, unique in it.
TRIREME_API PrefetchingLoader::MakeBatch leaf_batches(std::shared_ptr<const DataSource> source,
                                                      const GlobalBatch& plan, int rank, int world,
                                                      Deal deal = Deal::blocks);

}  // namespace trireme
