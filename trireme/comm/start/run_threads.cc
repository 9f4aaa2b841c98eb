// SPDX-License-Identifier: Apache-2.0
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include "trireme/base/check.h"
#include "trireme/base/rank_label.h"
#include "trireme/comm/backend.h"
#include "trireme/comm/local/host/host.h"
#include "trireme/comm/registry.h"
#include "trireme/comm/start/blas.h"
#include "trireme/comm/start/run.h"
#include "trireme/store/memory_store.h"

namespace trireme {

namespace {

/// Makes rank r's group.
using MakeGroup = std::function<Group(int rank)>;

MakeGroup thread_groups(int n, const ThreadOptions& options) {
  check<UsageError>(detail::takes_threads(options.backend),
                    "run_threads: the backend {} needs ranks that are processes", options.backend);
  std::shared_ptr<Store> store = std::make_shared<MemoryStore>();
  auto world = std::make_shared<local::ThreadWorld>(n);
  return [n, options, store, world](int rank) {
    detail::BackendSpec spec;
    spec.rank = rank;
    spec.size = n;
    spec.timeout = options.timeout;
    spec.check = options.check;
    spec.tuned = false;  // tables are measured between processes
    spec.threads = world;
    spec.store = std::make_shared<PrefixStore>(
        std::shared_ptr<Store>(store->clone(Deadline::after(options.timeout))), "world");
    return Group(detail::make_backend(options.backend, spec));
  };
}

}  // namespace

void run_threads(int n, const std::function<void(Group)>& fn, Duration timeout) {
  run_threads(n, fn, ThreadOptions{timeout, "local"});
}

void run_threads(int n, const std::function<void(Group)>& fn, const ThreadOptions& options) {
  check<UsageError>(n >= 1 && n <= local::kMaxRanks, "run_threads: {} ranks; 1 to {} are possible",
                    n, local::kMaxRanks);
  mend_blas();
  const MakeGroup make_group = thread_groups(n, options);
  std::mutex mutex;
  std::exception_ptr first;  // the earliest: later exceptions follow from it
  std::vector<std::thread> threads;
  auto body = [&](int rank) {
    ThreadRankScope label(rank);
    Group group;
    auto keep_first = [&] {
      std::lock_guard lock(mutex);
      if (!first) first = std::current_exception();
    };
    try {
      group = make_group(rank);
      fn(group);
    } catch (const std::exception& e) {
      keep_first();
      if (group) group.abort(e.what());
    } catch (...) {
      keep_first();
      if (group) group.abort("an exception that is not a std::exception");
    }
  };
  for (int r = 0; r < n; ++r) threads.emplace_back(body, r);
  for (auto& t : threads) t.join();
  if (first) std::rethrow_exception(first);
}

}  // namespace trireme
