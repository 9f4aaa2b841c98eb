// SPDX-License-Identifier: Apache-2.0
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include "trireme/base/check.h"
#include "trireme/base/rank_label.h"
#include "trireme/comm/backend.h"
#include "trireme/comm/blas.h"
#include "trireme/comm/local_backend.h"
#include "trireme/comm/run.h"

namespace trireme {

void run_threads(int n, const std::function<void(Group)>& fn, Duration timeout) {
  check<UsageError>(n >= 1 && n <= local::kMaxRanks, "run_threads: {} ranks; 1 to {} are possible",
                    n, local::kMaxRanks);
  mend_blas();
  auto world = std::make_shared<local::ThreadWorld>(n);
  std::mutex mutex;
  std::exception_ptr first;  // in time: what the others throw follows from it
  std::vector<std::thread> threads;
  auto body = [&](int rank) {
    ThreadRankScope label(rank);
    Group group(detail::local_backend(local::thread_host(world, rank), timeout));
    auto keep_first = [&] {
      std::lock_guard lock(mutex);
      if (!first) first = std::current_exception();
    };
    try {
      fn(group);
    } catch (const std::exception& e) {
      keep_first();
      group.abort(e.what());
    } catch (...) {
      keep_first();
      group.abort("an exception that is no std::exception");
    }
  };
  for (int r = 0; r < n; ++r) threads.emplace_back(body, r);
  for (auto& t : threads) t.join();
  if (first) std::rethrow_exception(first);
}

}  // namespace trireme
