// SPDX-License-Identifier: Apache-2.0
#include "trireme/base/process/process_id.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

namespace trireme::process_id_test {
namespace {

const ProcessId kSelf{"node1", "boot-a", "pid:[1]", 100, 5000};

ProcessId other(int64_t pid, int64_t start) {
  ProcessId id = kSelf;
  id.pid = pid;
  id.start = start;
  return id;
}

TEST(base_process_id, this_process_is_alive_and_names_itself) {
  const ProcessId self = own_process_id();
  EXPECT_EQ(self.pid, ::getpid());
  EXPECT_GT(self.start, 0);
  EXPECT_FALSE(self.host.empty() || self.boot.empty() || self.pid_space.empty());
  EXPECT_EQ(presence_of(self), Presence::alive);
  EXPECT_EQ(own_process_id(), self);
}

TEST(base_process_id, a_process_that_ended_is_dead_before_it_is_waited_for) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::pause();
    ::_exit(0);
  }
  ProcessId id = own_process_id();
  id.pid = child;
  id.start = start_of_process(child).value_or(-1);
  EXPECT_EQ(presence_of(id), Presence::alive);
  ::kill(child, SIGKILL);
  siginfo_t info{};
  ASSERT_EQ(::waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOWAIT), 0);
  EXPECT_EQ(presence_of(id), Presence::dead);
  ::waitpid(child, nullptr, 0);
  EXPECT_EQ(presence_of(id), Presence::dead);
}

TEST(base_process_id, a_number_that_is_used_again_is_another_process) {
  EXPECT_EQ(presence_of(other(7, 40), kSelf, 40), Presence::alive);
  EXPECT_EQ(presence_of(other(7, 40), kSelf, 41), Presence::dead);
  EXPECT_EQ(presence_of(other(7, 40), kSelf, std::nullopt), Presence::dead);
}

TEST(base_process_id, where_the_system_hides_the_start_a_process_that_is_there_counts_as_it) {
  EXPECT_EQ(presence_of(other(7, 40), kSelf, -1), Presence::alive);
  EXPECT_EQ(presence_of(other(7, -1), kSelf, 41), Presence::alive);
}

TEST(base_process_id, the_same_pid_and_start_after_a_reboot_are_dead) {
  ProcessId before = kSelf;
  before.boot = "boot-b";
  EXPECT_EQ(presence_of(before, kSelf, kSelf.start), Presence::dead);
}

TEST(base_process_id, another_host_is_elsewhere_whatever_runs_here) {
  ProcessId there = kSelf;
  there.host = "node2";
  there.boot = "boot-b";
  EXPECT_EQ(presence_of(there, kSelf, kSelf.start), Presence::elsewhere);
  EXPECT_EQ(presence_of(there, kSelf, std::nullopt), Presence::elsewhere);
}

TEST(base_process_id, two_machines_that_call_themselves_localhost_are_two) {
  ProcessId there = kSelf, self = kSelf;
  there.host = self.host = "localhost";
  there.boot = "boot-b";
  EXPECT_EQ(presence_of(there, self, std::nullopt), Presence::elsewhere);
}

TEST(base_process_id, a_container_beside_this_one_is_hidden) {
  ProcessId there = kSelf;
  there.host = "container2";
  there.pid_space = "pid:[2]";
  EXPECT_EQ(presence_of(there, kSelf, kSelf.start), Presence::hidden);
}

}  // namespace
}  // namespace trireme::process_id_test
