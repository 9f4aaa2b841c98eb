// SPDX-License-Identifier: Apache-2.0
#include "trireme/train/rank/process.h"

#include <ATen/Context.h>
#include <malloc.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

#include <csignal>
#include <cstdint>

namespace trireme {
namespace {

volatile std::sig_atomic_t asked_by = 0;
volatile int64_t asked_at_ms = 0;

// A launcher forwards signals that its workers may have received themselves (Ctrl-C on a terminal,
// scancel): this is one request, not two.
constexpr int64_t kSameRequestMs = 500;

// Nobody sends these in impatience: a terminal that goes away and a batch system repeat them.
bool says_the_same_again(int signal) { return signal == SIGHUP || signal == SIGUSR1; }

int64_t now_ms() {
  timespec t{};
  ::clock_gettime(CLOCK_MONOTONIC, &t);  // async-signal-safe
  return t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

void on_stop_signal(int signal) {
  if (asked_by != 0) {
    if (says_the_same_again(signal) || now_ms() - asked_at_ms < kSameRequestMs) return;
    ::signal(signal, SIG_DFL);
    ::raise(signal);  // delivered when this handler returns
    return;
  }
  asked_at_ms = now_ms();
  asked_by = signal;
}

}  // namespace

void tune_worker_process() {
  // Activations are allocated in every step: they are kept instead of being returned to the kernel
  // and faulted in again (GPT step 740 → 698 ms).
  ::mallopt(M_MMAP_THRESHOLD, 1 << 30);
  ::mallopt(M_TRIM_THRESHOLD, 2047 << 20);
  ::mallopt(M_TOP_PAD, 64 << 20);
  at::globalContext().setFlushDenormal(true);
}

void give_memory_back() {
  ::mallopt(M_MMAP_THRESHOLD, 1 << 20);
  ::mallopt(M_TRIM_THRESHOLD, 1 << 20);
  ::mallopt(M_TOP_PAD, 0);
  ::malloc_trim(0);
}

void stop_after_the_step() {
  struct sigaction action {};
  action.sa_handler = on_stop_signal;
  action.sa_flags = SA_RESTART;
  ::sigaction(SIGINT, &action, nullptr);
  ::sigaction(SIGTERM, &action, nullptr);
  for (int signal : {SIGHUP, SIGUSR1}) {
    struct sigaction now {};
    const bool is_free = ::sigaction(signal, nullptr, &now) == 0 && !(now.sa_flags & SA_SIGINFO) &&
                         now.sa_handler == SIG_DFL;
    if (is_free) ::sigaction(signal, &action, nullptr);
  }
}

int stop_signal() { return asked_by; }

void ignore_stop_signals() {
  for (int signal : {SIGTERM, SIGHUP, SIGUSR1}) ::signal(signal, SIG_IGN);
}

}  // namespace trireme
