// SPDX-License-Identifier: Apache-2.0
#include "trireme/data/loader.h"

#include <pthread.h>

#include <condition_variable>
#include <exception>
#include <map>
#include <mutex>
#include <numeric>
#include <thread>
#include <utility>
#include <vector>

#include "trireme/base/check.h"
#include "trireme/base/process/quiet_thread.h"
#include "trireme/base/trace.h"

namespace trireme {

struct PrefetchingLoader::State {
  State(MakeBatch m, const LoaderOptions& o) : make(std::move(m)), options(o), step(o.first_step) {}

  const MakeBatch make;
  const LoaderOptions options;
  int64_t step;              // of the caller
  std::exception_ptr error;  // that next() has met

  struct Prepared {
    Batch batch;
    std::exception_ptr error;
  };
  std::mutex mutex;
  std::condition_variable changed;
  std::map<int64_t, Prepared> ready;   // by step, as threads finish
  int64_t begun = options.first_step;  // the first step that no thread has taken
  int64_t given = options.first_step;  // the first that next() has not
  bool stop = false;                   // also behind an error: later steps are of no use
  std::vector<std::thread> threads;

  Prepared prepare(int64_t s) {
    Span span("data", "prepare");
    try {
      return {make(s), nullptr};
    } catch (...) {
      return {{}, std::current_exception()};
    }
  }

  void run() {
    for (;;) {
      int64_t s;
      {
        std::unique_lock lock(mutex);
        changed.wait(lock, [&] { return stop || begun < given + options.depth; });
        if (stop) return;
        s = begun++;
      }
      auto prepared = prepare(s);
      {
        std::lock_guard lock(mutex);
        stop = stop || prepared.error;
        ready.emplace(s, std::move(prepared));
      }
      changed.notify_all();
    }
  }

  void start() {
    try {
      while (threads.size() < static_cast<size_t>(options.threads)) {
        threads.push_back(quiet_thread([this] { run(); }));
        pthread_setname_np(threads.back().native_handle(), "trireme-data");
      }
    } catch (const std::system_error& e) {
      fail<ResourceError>("the data loader cannot start a thread: {}", e.what());
    }
  }

  Prepared take() {
    std::unique_lock lock(mutex);
    const auto limit = std::chrono::duration_cast<std::chrono::milliseconds>(options.timeout);
    check<Timeout>(changed.wait_for(lock, limit, [&] { return ready.contains(step); }),
                   "the data of step {} did not arrive within {} s: does the file system that "
                   "holds it still respond?",
                   step, std::chrono::duration<double>(options.timeout).count());
    auto prepared = std::move(ready.extract(step).mapped());
    ++given;
    lock.unlock();
    changed.notify_all();
    return prepared;
  }

  ~State() {
    {
      std::lock_guard lock(mutex);
      stop = true;
    }
    changed.notify_all();
    for (auto& thread : threads) thread.join();
  }
};

PrefetchingLoader::PrefetchingLoader(MakeBatch make, const LoaderOptions& options) {
  check<UsageError>(options.depth >= 1,
                    "data loader: a depth of {}: at least 1 batch ahead is needed", options.depth);
  check<UsageError>(options.threads >= 1 && options.threads <= options.depth,
                    "data loader: {} threads for {} batches ahead: at least 1, at most as many",
                    options.threads, options.depth);
  state_ = std::make_unique<State>(std::move(make), options);
  if (options.background) state_->start();
}

PrefetchingLoader::~PrefetchingLoader() = default;
PrefetchingLoader::PrefetchingLoader(PrefetchingLoader&&) noexcept = default;
PrefetchingLoader& PrefetchingLoader::operator=(PrefetchingLoader&&) noexcept = default;

int64_t PrefetchingLoader::step() const { return state_->step; }

Batch PrefetchingLoader::next() {
  auto& s = *state_;
  Span span("data", "next");
  if (s.error) std::rethrow_exception(s.error);
  auto prepared = s.options.background ? s.take() : s.prepare(s.step);
  if (prepared.error) {
    s.error = prepared.error;
    std::rethrow_exception(s.error);
  }
  ++s.step;
  return std::move(prepared.batch);
}

PrefetchingLoader::MakeBatch leaf_batches(std::shared_ptr<const DataSource> source,
                                          const GlobalBatch& plan, int rank, int world, Deal deal) {
  check<UsageError>(plan.options().dataset_size == source->size(),
                    "data loader: the plan is for {} samples and the source has {}",
                    plan.options().dataset_size, source->size());
  // Says now what it would say at the first step.
  plan.leaves_of(rank, world, plan.options().origin.step, deal);
  return [source = std::move(source), plan, rank, world, deal](int64_t step) {
    Batch batch;
    for (auto& leaf : plan.leaves_of(rank, world, step, deal)) {
      // Ranks have as many micro-batches each: one without samples has a sample that counts
      // nothing.
      const bool empty = leaf.ids.empty();
      if (empty) leaf.ids.push_back(0);
      auto micro = source->get_in_epoch(leaf.ids, plan.epoch_of(step));
      if (empty) micro.weight = 0;
      micro.samples.resize(leaf.ids.size());
      std::iota(micro.samples.begin(), micro.samples.end(), leaf.first);
      batch.push_back(std::move(micro));
    }
    return batch;
  };
}

}  // namespace trireme
