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
  int64_t first_step = 0;   // when resuming: the step to continue from
  bool background = false;  // true: threads prepare batches ahead, for ranks with spare cores
  int threads = 1;          // how many
  int depth = 2;            // batches prepared ahead or being prepared; at least as many as threads
  Duration timeout = std::chrono::minutes(10);  // for next(), in case the data source hangs
};

/// The batches of steps first_step, first_step + 1, … in order, prepared by `make(step)`, either
/// ahead of time on background threads or in next() itself. Its position is the step alone, so
/// there is nothing to save. With several threads, `make` runs for several steps at once.
///
/// next() rethrows what `make` threw, at the step where it threw, and again on every later call.
/// Throws Timeout if the next batch is not ready after `timeout`. The destructor stops the threads
/// once they have finished the batches they are working on. Only one thread may use a loader;
/// `make` runs on others.
class TRIREME_API PrefetchingLoader {
 public:
  using MakeBatch = std::function<Batch(int64_t step)>;
  explicit PrefetchingLoader(MakeBatch make, const LoaderOptions& options = {});
  ~PrefetchingLoader();
  PrefetchingLoader(PrefetchingLoader&&) noexcept;
  PrefetchingLoader& operator=(PrefetchingLoader&&) noexcept;

  Batch next();
  /// The step whose batch next() will return.
  int64_t step() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// Makes a batch of this rank's leaves of a step, read from the source. MicroBatch::samples are
/// positions in the run, unique within it.
TRIREME_API PrefetchingLoader::MakeBatch leaf_batches(std::shared_ptr<const DataSource> source,
                                                      const GlobalBatch& plan, int rank, int world,
                                                      Deal deal = Deal::blocks);

}  // namespace trireme
