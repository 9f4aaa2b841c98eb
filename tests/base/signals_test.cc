// SPDX-License-Identifier: Apache-2.0
#include "trireme/base/process/signals.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <string>

namespace signals_test {

using namespace trireme;

namespace {

int out = -1;  // a pipe's end, of the child

struct Letter final : SignalWriter {
  bool write_down(int, const char*) noexcept override { return ::write(out, "w", 1) == 1; }
};

void own(int, siginfo_t* info, void*) {
  const char* word = info->si_addr == reinterpret_cast<void*>(16) ? "own" : "elsewhere";
  if (::write(out, word, std::char_traits<char>::length(word)) < 0) ::_exit(3);
  ::_exit(7);
}

struct Ended {
  std::string wrote;
  int status;
};

Ended child(void (*body)()) {
  int ends[2];
  EXPECT_EQ(::pipe(ends), 0);
  const pid_t pid = ::fork();
  if (pid == 0) {
    out = ends[1];
    for (int s : {SIGSEGV, SIGABRT, SIGUSR2}) ::signal(s, SIG_DFL);  // a sanitizer's
    Letter letter;
    SignalEnrolment enrolled(&letter);
    body();
    ::_exit(0);
  }
  ::close(ends[1]);
  Ended ended;
  char buffer[64];
  for (ssize_t n; (n = ::read(ends[0], buffer, sizeof buffer)) > 0;)
    ended.wrote.append(buffer, static_cast<size_t>(n));
  ::close(ends[0]);
  EXPECT_EQ(::waitpid(pid, &ended.status, 0), pid);
  return ended;
}

void touch_16() {
  volatile int* nowhere = reinterpret_cast<int*>(uintptr_t{16});
  asm volatile("" : "+r"(nowhere));
  *nowhere = 1;
}

}  // namespace

TEST(base_signals, a_crash_is_written_down_and_kills_as_before) {
  const Ended e = child([] {
    install_signal_handlers();
    install_signal_handlers();
    touch_16();
  });
  EXPECT_EQ(e.wrote, "w");
  EXPECT_TRUE(WIFSIGNALED(e.status));
  EXPECT_EQ(WTERMSIG(e.status), SIGSEGV);
}

TEST(base_signals, a_handler_of_the_program_runs_behind_ours_and_sees_the_same_fault) {
  const Ended e = child([] {
    struct sigaction mine {};
    mine.sa_sigaction = own;
    mine.sa_flags = SA_SIGINFO;
    ::sigaction(SIGSEGV, &mine, nullptr);
    install_signal_handlers();
    touch_16();
  });
  EXPECT_EQ(e.wrote, "wown");
  ASSERT_TRUE(WIFEXITED(e.status));
  EXPECT_EQ(WEXITSTATUS(e.status), 7);
}

TEST(base_signals, a_signal_that_was_sent_is_passed_on) {
  const Ended e = child([] {
    install_signal_handlers();
    ::raise(SIGABRT);
  });
  EXPECT_EQ(e.wrote, "w");
  EXPECT_TRUE(WIFSIGNALED(e.status));
  EXPECT_EQ(WTERMSIG(e.status), SIGABRT);
}

TEST(base_signals, what_is_ignored_stays_ignored_and_usr2_of_the_program_is_its_own) {
  const Ended e = child([] {
    ::signal(SIGBUS, SIG_IGN);
    ::signal(SIGUSR2, [](int) {
      if (::write(out, "usr2", 4) < 0) ::_exit(3);
    });
    install_signal_handlers();
    ::raise(SIGBUS);
    ::raise(SIGUSR2);
  });
  EXPECT_EQ(e.wrote, "usr2");
  ASSERT_TRUE(WIFEXITED(e.status));
  EXPECT_EQ(WEXITSTATUS(e.status), 0);
}

TEST(base_signals, usr2_writes_each_time_and_the_program_goes_on) {
  const Ended e = child([] {
    install_signal_handlers();
    ::raise(SIGUSR2);
    ::raise(SIGUSR2);
  });
  EXPECT_EQ(e.wrote, "ww");
  EXPECT_EQ(e.status, 0);
}

}  // namespace signals_test
