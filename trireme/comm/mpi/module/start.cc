// SPDX-License-Identifier: Apache-2.0
#include <sched.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <thread>

#include "trireme/comm/mpi/module/module.h"

namespace trireme::mpi_module {
namespace {

using Clock = std::chrono::steady_clock;

bool complete(MPI_Request& request) {
  int done = 0;
  return MPI_Test(&request, &done, MPI_STATUS_IGNORE) == MPI_SUCCESS && done;
}

/// Returns false if not all of them complete within `seconds`.
bool complete(std::vector<MPI_Request> requests, double seconds) {
  const auto end = Clock::now() + std::chrono::duration<double>(seconds);
  for (MPI_Request& request : requests)
    while (!complete(request)) {
      if (Clock::now() > end) return false;
      ::sched_yield();
    }
  return true;
}

/// MPI_Finalize waits for all ranks without a deadline; this gives it one. A rank that has failed
/// leaves without it: its launcher sees that and ends the job, instead of two sides waiting for
/// each other.
void at_exit(int status, void* pid) {
  if (reinterpret_cast<intptr_t>(pid) != ::getpid()) return;  // a child of a fork
  Process& p = process();
  std::lock_guard lock(p.one_at_a_time);
  if (!alive() || status != 0) return;
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  MPI_Request all_here;
  if (MPI_Ibarrier(MPI_COMM_WORLD, &all_here) != MPI_SUCCESS) return;
  if (!complete({all_here}, p.exit_patience)) return;
#ifndef OPEN_MPI
  // MPICH's would wait for these calls; its launcher accepts an exit with 0 as the end.
  if (!complete(p.abandoned, 0.1)) return;
#endif
  std::thread([status, patience = std::chrono::duration<double>(p.exit_patience)] {
    std::this_thread::sleep_for(patience);
    ::_exit(status);
  }).detach();
  MPI_Finalize();
}

const char* level_name(int level) {
  return level == MPI_THREAD_SINGLE       ? "MPI_THREAD_SINGLE"
         : level == MPI_THREAD_FUNNELED   ? "MPI_THREAD_FUNNELED"
         : level == MPI_THREAD_SERIALIZED ? "MPI_THREAD_SERIALIZED"
                                          : "MPI_THREAD_MULTIPLE";
}

/// Open MPI implements every MPI_Iallreduce as a reduce and a broadcast. Between two ranks
/// Rabenseifner's algorithm takes a third to a half of the time from 4 KiB up (figures:
/// docs/communication.md). The user's own choice is kept; an Open MPI that does not know the
/// variable does not read it.
void choose_all_reduce() {
#ifdef OPEN_MPI
  const char* size = std::getenv("OMPI_COMM_WORLD_SIZE");
  constexpr const char* kRabenseifner = "3";
  if (size && std::string_view(size) == "2")
    ::setenv("OMPI_MCA_coll_libnbc_iallreduce_algorithm", kRabenseifner, /*overwrite=*/0);
#endif
}

}  // namespace

Process& process() {
  static Process* const one = new Process;  // outlives every static object that holds a group
  return *one;
}

bool initialized() {
  int yes = 0;
  MPI_Initialized(&yes);
  return yes;
}

bool alive() {
  int over = 0;
  MPI_Finalized(&over);
  return initialized() && !over;
}

bool start(const TriremeMpiHost* host, char* why, size_t why_size) {
  Process& p = process();
  std::lock_guard lock(p.one_at_a_time);
  if (initialized() && !alive()) {
    std::snprintf(why, why_size, "MPI_Finalize was called in this process already");
    return false;
  }
  int level = MPI_THREAD_SINGLE;
  if (!initialized()) {
    choose_all_reduce();
    if (MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &level) != MPI_SUCCESS) {
      std::snprintf(why, why_size, "MPI_Init_thread failed");
      return false;
    }
    // Open MPI passes an error of a nonblocking collective, on whatever communicator, to this one's
    // handler, and the default ends the job.
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    ::on_exit(at_exit, reinterpret_cast<void*>(static_cast<intptr_t>(::getpid())));
  } else {
    MPI_Query_thread(&level);
  }
  if (level < MPI_THREAD_SERIALIZED) {
    std::snprintf(
        why, why_size,
        "MPI was initialised at %s, and calls come from one thread at a time, but not always from "
        "the same one: use MPI_Init_thread with MPI_THREAD_SERIALIZED or more",
        level_name(level));
    return false;
  }
  if (!p.started) {
    p.host = host;
    make_half_ops(p);
    p.started = true;
  }
  return true;
}

void set_exit_patience(double seconds) {
  Process& p = process();
  std::lock_guard lock(p.one_at_a_time);
  if (seconds > p.exit_patience) p.exit_patience = seconds;
}

void abandon(const TriremeMpiRequest* requests, size_t count) {
  Process& p = process();
  std::lock_guard lock(p.one_at_a_time);
  for (size_t i = 0; i < count; ++i) p.abandoned.push_back(request_of(requests[i]));
}

}  // namespace trireme::mpi_module

extern "C" __attribute__((visibility("default"))) const TriremeMpiModule* trireme_mpi_module(
    uint32_t abi) {
  using namespace trireme::mpi_module;
  if (abi != kTriremeMpiAbi) return nullptr;
  static const TriremeMpiModule module = [] {
    TriremeMpiModule m{};
    m.abi = kTriremeMpiAbi;
    m.library = TRIREME_MPI_LIBRARY;
    m.initialized = initialized;
    m.start = start;
    m.set_exit_patience = set_exit_patience;
    m.abandon = abandon;
    m.adopt = adopt;
    m.duplicate = duplicate;
    m.create = create;
    m.release = release;
    fill_calls(m);
    return m;
  }();
  return &module;
}
