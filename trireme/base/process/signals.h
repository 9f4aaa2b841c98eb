// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>

#include "trireme/base/export.h"

// What a process writes down when somebody asks (SIGUSR2) or when it is about to die of a fatal
// signal. Process-wide by nature. The library is a guest: handlers are installed only when asked
// for, and what the program had for a fatal signal still runs.
namespace trireme {

class TRIREME_API SignalWriter {
 public:
  virtual ~SignalWriter() = default;
  /// Runs in signal handlers, on whatever thread, beside the thread that owns the data: only
  /// async-signal-safe calls, no locks, no allocation. signal: which one, 0: a plain call.
  /// folder: where to; nullptr: where this writer always writes. Tells whether it wrote.
  virtual bool write_down(int signal, const char* folder) noexcept = 0;
};

/// A writer (or nullptr: nobody) is enrolled as long as this lives; the writer must be whole before
/// and live longer. When it goes, no handler is inside the writer any more.
class TRIREME_API SignalEnrolment {
 public:
  explicit SignalEnrolment(SignalWriter* writer) noexcept;
  ~SignalEnrolment();
  SignalEnrolment(const SignalEnrolment&) = delete;

 private:
  std::atomic<SignalWriter*>* place_;  // nullptr: no writer, or the table is full
};

/// SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT: every writer writes, once; then the signal takes the
/// course that it had before this call (libraries under MPI install handlers of their own). Left
/// alone where it is ignored. SIGUSR2: every writer writes, and the program goes on; only where its
/// disposition is the default. May be called again.
TRIREME_API void install_signal_handlers();

/// Every writer writes, now. How many files that made.
TRIREME_API int write_all_down(int signal, const char* folder) noexcept;

}  // namespace trireme
