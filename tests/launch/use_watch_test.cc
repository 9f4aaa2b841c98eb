// SPDX-License-Identifier: Apache-2.0
#include "trireme/launch/machine/use_watch.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "trireme/base/process/cpu_share.h"

namespace trireme::launch::use_watch_test {
namespace {

/// Burns so much CPU time.
void burn(double seconds) {
  while (static_cast<double>(::clock()) / CLOCKS_PER_SEC < seconds) {
  }
}

TEST(launch_use_watch, counts_what_a_worker_and_those_that_it_started_had) {
  int ready[2];
  ASSERT_EQ(::pipe(ready), 0);
  const pid_t worker = ::fork();
  if (worker == 0) {
    const pid_t child = ::fork();
    if (child == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      burn(0.2);
      [[maybe_unused]] auto n = ::write(ready[1], "x", 1);
      ::pause();
    }
    const pid_t waited_for = ::fork();
    if (waited_for == 0) {
      burn(0.2);
      ::_exit(0);
    }
    ::waitpid(waited_for, nullptr, 0);
    [[maybe_unused]] auto n = ::write(ready[1], "x", 1);
    ::waitpid(child, nullptr, 0);
    ::_exit(0);
  }
  char byte;
  for (int i = 0; i < 2; ++i) ASSERT_EQ(::read(ready[0], &byte, 1), 1);
  const auto seconds = cpu_seconds_of_tree(worker);
  ASSERT_TRUE(seconds.has_value());
  EXPECT_GE(*seconds, 0.35);
  EXPECT_LT(*seconds, 5);
  ::kill(worker, SIGKILL);
  ::waitpid(worker, nullptr, 0);
  EXPECT_FALSE(cpu_seconds_of_tree(worker).has_value());
  for (int fd : ready) ::close(fd);
}

TEST(launch_use_watch, of_one_worker_or_a_short_job_there_is_nothing_to_say) {
  UseWatch watch([](pid_t) { return 1.0; });
  EXPECT_TRUE(watch.next_look().is_never());
  watch.watch(0, 1, 1);
  watch.watch(1, 2, 1);
  EXPECT_FALSE(watch.next_look().is_never());
  watch.ended(1);
  watch.ended(2);
  EXPECT_EQ(watch.sentence(), "");
}

TEST(launch_use_watch, what_a_worker_had_is_a_part_of_its_own_cpus) {
  // Process 1 had ten times the time that passes here, on 20 CPUs; process 2 half of that, on one.
  const auto begin = Clock::now();
  UseWatch watch([&](pid_t pid) { return seconds_since(begin) * (pid == 1 ? 10 : 5); },
                 Duration::zero());
  watch.watch(0, 1, 20);
  watch.watch(1, 2, 1);
  while (seconds_since(begin) < 0.05) {
  }
  watch.ended(1);
  watch.ended(2);
  // 500 % and 50 %, or a little more where this thread was interrupted.
  EXPECT_EQ(watch.sentence().rfind("CPU: rank 1 was busiest, 5", 0), 0u) << watch.sentence();
  EXPECT_NE(watch.sentence().find("rank 0 idlest, 5"), std::string::npos) << watch.sentence();
}

TEST(launch_use_watch, names_the_busiest_and_the_idlest) {
  EXPECT_EQ(busiest_and_idlest({{0, 0.41}, {1, 0.9}, {2, 0.6}, {3, 0.98}}),
            "CPU: rank 3 was busiest, 98 % of its CPU; rank 0 idlest, 41 %");
  EXPECT_EQ(busiest_and_idlest({{0, 0.5}}), "");
}

}  // namespace
}  // namespace trireme::launch::use_watch_test
