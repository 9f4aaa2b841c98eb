// SPDX-License-Identifier: Apache-2.0
#include <ATen/Context.h>
#include <malloc.h>
#include <signal.h>
#include <unistd.h>

#include <csignal>

#include "cli/worker/tasks.h"

namespace trireme {
namespace {

volatile std::sig_atomic_t asked_by = 0;

void on_stop_signal(int signal) {
  if (asked_by != 0) {
    ::signal(signal, SIG_DFL);
    ::raise(signal);  // delivered when this handler returns
    return;
  }
  asked_by = signal;
}

}  // namespace

void tune_worker_process() {
  // Activations come back every step: kept, not returned to the kernel and faulted in again (GPT
  // step 740 → 698 ms).
  ::mallopt(M_MMAP_THRESHOLD, 1 << 30);
  ::mallopt(M_TRIM_THRESHOLD, 2047 << 20);
  ::mallopt(M_TOP_PAD, 64 << 20);
  at::globalContext().setFlushDenormal(true);
}

void catch_stop_signals() {
  struct sigaction action {};
  action.sa_handler = on_stop_signal;
  action.sa_flags = SA_RESTART;
  ::sigaction(SIGINT, &action, nullptr);
  ::sigaction(SIGTERM, &action, nullptr);
}

int stop_signal() { return asked_by; }

}  // namespace trireme
