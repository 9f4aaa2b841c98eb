// SPDX-License-Identifier: Apache-2.0
#include "trireme/launch/process/signal_inbox.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <thread>

#include "tests/support/processes.h"

namespace trireme::launch::signal_inbox_test {
namespace {

using testing::eventually;

/// A thread of somebody else's, from before the inbox, that blocks nothing.
class OtherThread {
 public:
  OtherThread() {
    while (!running_) std::this_thread::yield();
  }
  ~OtherThread() {
    stop_ = true;
    thread_.join();
  }

 private:
  std::atomic<bool> running_{false}, stop_{false};
  std::thread thread_{[this] {
    running_ = true;
    while (!stop_) ::usleep(1000);
  }};
};

bool comes_in(SignalInbox& inbox, int signal) {
  return eventually([&] {
    const auto taken = inbox.take();
    return std::find(taken.begin(), taken.end(), signal) != taken.end();
  });
}

TEST(launch_signal_inbox, takes_what_another_thread_would_have_got) {
  const OtherThread other;
  SignalInbox inbox({SIGUSR1, SIGTERM});
  for (int signal : {SIGUSR1, SIGTERM, SIGUSR1}) {
    ASSERT_EQ(::kill(::getpid(), signal), 0);
    EXPECT_TRUE(comes_in(inbox, signal)) << signal;
  }
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) ::_exit(0);
  EXPECT_TRUE(comes_in(inbox, SIGCHLD));
  EXPECT_EQ(::waitpid(child, nullptr, 0), child);
}

TEST(launch_signal_inbox, gives_the_handlers_back) {
  struct sigaction before {};
  before.sa_handler = SIG_IGN;
  struct sigaction old {};
  ASSERT_EQ(::sigaction(SIGUSR1, &before, &old), 0);
  { const SignalInbox inbox({SIGUSR1}); }
  struct sigaction after {};
  ASSERT_EQ(::sigaction(SIGUSR1, &old, &after), 0);
  EXPECT_EQ(after.sa_handler, SIG_IGN);
}

}  // namespace
}  // namespace trireme::launch::signal_inbox_test
