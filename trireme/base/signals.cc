// SPDX-License-Identifier: Apache-2.0
#include "trireme/base/signals.h"

#include <sched.h>
#include <signal.h>

#include <array>
#include <cerrno>

#include "trireme/base/clock.h"

namespace trireme {
namespace {

constexpr size_t kWriters = 4096;  // groups of all thread ranks of one process

struct Table {
  std::array<std::atomic<SignalWriter*>, kWriters> writers{};
  std::atomic<size_t> used{0};  // places from here on were never taken
  std::atomic<int> writing{0};  // calls that are inside writers
  std::atomic<bool> dying{false};
};
// Constant-initialised and never destroyed: a handler may come at any time.
constinit Table table;

void handle(int signal) {
  const int saved = errno;
  const bool fatal = signal != SIGUSR2;
  if (!fatal || !table.dying.exchange(true)) write_all_down(signal, nullptr);
  if (fatal) {
    // It is blocked while we are here: it comes back, by default, as soon as this returns.
    ::signal(signal, SIG_DFL);
    ::raise(signal);
  }
  errno = saved;
}

}  // namespace

SignalEnrolment::SignalEnrolment(SignalWriter* writer) noexcept : place_(nullptr) {
  if (!writer) return;
  for (size_t i = 0; i < kWriters; ++i) {
    SignalWriter* none = nullptr;
    if (!table.writers[i].compare_exchange_strong(none, writer, std::memory_order_acq_rel))
      continue;
    place_ = &table.writers[i];
    size_t used = table.used.load();
    while (used < i + 1 && !table.used.compare_exchange_weak(used, i + 1)) continue;
    return;
  }
}

SignalEnrolment::~SignalEnrolment() {
  if (!place_) return;
  place_->store(nullptr, std::memory_order_seq_cst);
  // A dying process stays in there; nobody waits for it for ever.
  const Deadline patience = Deadline::after(std::chrono::seconds(10));
  while (table.writing.load(std::memory_order_seq_cst) && !patience.expired()) ::sched_yield();
}

int write_all_down(int signal, const char* folder) noexcept {
  int written = 0;
  table.writing.fetch_add(1, std::memory_order_seq_cst);
  const size_t used = table.used.load();
  for (size_t i = 0; i < used; ++i)
    if (SignalWriter* w = table.writers[i].load(std::memory_order_seq_cst))
      written += w->write_down(signal, folder);
  table.writing.fetch_sub(1, std::memory_order_seq_cst);
  return written;
}

void install_signal_handlers() {
  for (int signal : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGUSR2}) {
    struct sigaction now {};
    if (::sigaction(signal, nullptr, &now) != 0) continue;
    if ((now.sa_flags & SA_SIGINFO) || now.sa_handler != SIG_DFL) continue;
    struct sigaction ours {};
    ours.sa_handler = handle;
    ours.sa_flags = SA_RESTART;
    ::sigemptyset(&ours.sa_mask);
    ::sigaction(signal, &ours, nullptr);
  }
}

}  // namespace trireme
