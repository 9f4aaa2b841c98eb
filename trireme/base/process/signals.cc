// SPDX-License-Identifier: Apache-2.0
#include "trireme/base/process/signals.h"

#include <sched.h>
#include <signal.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <iterator>

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

constexpr int kSignals[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGUSR2};
// What the program had for each of them.
constinit struct sigaction before[std::size(kSignals)] = {};

size_t index_of(int signal) {
  return static_cast<size_t>(std::find(std::begin(kSignals), std::end(kSignals), signal) -
                             std::begin(kSignals));
}

void handle(int signal, siginfo_t* info, void*) {
  const int saved = errno;
  const bool fatal = signal != SIGUSR2;
  if (!fatal || !table.dying.exchange(true)) write_all_down(signal, nullptr);
  if (fatal) {
    ::sigaction(signal, &before[index_of(signal)], nullptr);
    // What an instruction did it does again as soon as this returns, and tells the same. What was
    // sent is blocked while we are here.
    if (info->si_code <= 0) ::raise(signal);
  }
  errno = saved;
}

bool is_ours(const struct sigaction& a) {
  return a.sa_flags & SA_SIGINFO && a.sa_sigaction == handle;
}
bool is(const struct sigaction& a, void (*handler)(int)) {
  return !(a.sa_flags & SA_SIGINFO) && a.sa_handler == handler;
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
  for (int signal : kSignals) {
    struct sigaction now {};
    if (::sigaction(signal, nullptr, &now) != 0 || is_ours(now) || is(now, SIG_IGN)) continue;
    if (signal == SIGUSR2 && !is(now, SIG_DFL)) continue;  // it means something else there
    before[index_of(signal)] = now;
    struct sigaction ours {};
    ours.sa_sigaction = handle;
    ours.sa_flags = SA_RESTART | SA_SIGINFO | (now.sa_flags & SA_ONSTACK);
    ::sigemptyset(&ours.sa_mask);
    ::sigaction(signal, &ours, nullptr);
  }
}

}  // namespace trireme
