// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <string>
#include <vector>

#include "tests/checkpoint/test_state.h"
#include "tests/support/ranks.h"
#include "trireme/base/file.h"
#include "trireme/base/rank_label.h"
#include "trireme/comm/group.h"
#include "trireme/comm/local_backend.h"

namespace trireme::test {

/// n processes, forked (the caller has no other threads): what `body` threw in each, and which were
/// killed.
inline std::vector<std::string> outcomes_by_processes(int n,
                                                      const std::function<void(Group)>& body) {
  PrivateFolder meeting, said;
  constexpr Duration kLimit = std::chrono::seconds(30);
  std::vector<pid_t> pids;
  for (int r = 0; r < n; ++r) {
    const pid_t pid = ::fork();
    if (pid == 0) {
      ThreadRankScope label(r);
      const std::string outcome = trireme::testing::outcome_of([&] {
        Group group(trireme::detail::local_backend(
            local::process_host(r, n, trireme::testing::folder_exchange(meeting.path()),
                                Deadline::after(kLimit)),
            kLimit));
        const std::string inner = trireme::testing::outcome_of([&] { body(group); });
        if (!inner.empty()) group.abort(inner);
        spill(said / std::to_string(r), inner);
      });
      ::_exit(outcome.empty() ? 0 : 1);
    }
    pids.push_back(pid);
  }
  std::vector<std::string> outcomes;
  for (int r = 0; r < n; ++r) {
    int status = 0;
    EXPECT_EQ(::waitpid(pids[static_cast<size_t>(r)], &status, 0), pids[static_cast<size_t>(r)]);
    outcomes.push_back(WIFSIGNALED(status) ? "signal " + std::to_string(WTERMSIG(status))
                                           : slurp(said / std::to_string(r)));
  }
  return outcomes;
}

}  // namespace trireme::test
