// SPDX-License-Identifier: Apache-2.0
#include "trireme/train/rank/process.h"

#include <ATen/Context.h>
#include <malloc.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

#include <cstdint>

#include "trireme/base/process/stop_requests.h"

namespace trireme {
namespace {

// A launcher forwards signals that its workers may have received themselves (Ctrl-C on a terminal,
// scancel): this is one request, not two.
constexpr int64_t kSameRequestMs = 500;

constinit StopRequests requests(kSameRequestMs);

int64_t now_ms() {
  timespec t{};
  ::clock_gettime(CLOCK_MONOTONIC, &t);  // async-signal-safe
  return t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

void on_stop_signal(int signal) {
  if (!requests.is_impatient(signal, now_ms())) return;
  ::signal(signal, SIG_DFL);
  ::raise(signal);  // delivered when this handler returns
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

int stop_signal() { return requests.first(); }

void ignore_stop_signals() {
  for (int signal : {SIGTERM, SIGHUP, SIGUSR1}) ::signal(signal, SIG_IGN);
}

}  // namespace trireme
