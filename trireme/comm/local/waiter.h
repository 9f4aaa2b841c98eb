// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <linux/futex.h>
#include <linux/membarrier.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <string>

#include "trireme/base/export.h"

namespace trireme::local {

inline void cpu_relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

/// Fetches the cache line that is written next from the peers that read it, so that the later store
/// does not wait for it.
inline void prefetch_to_write(const void* line) {
#if defined(__x86_64__)
  // __builtin_prefetch means this only where the compiler's target has it; a CPU that lacks it does
  // nothing.
  asm volatile("prefetchw %0" : : "m"(*static_cast<const char*>(line)));
#else
  __builtin_prefetch(line, 1);
#endif
}

/// Orders every store before it with every load after it. (A sanitizer does not model it and need
/// not: only the decision whether to wake a sleeper depends on it.)
inline void full_fence() {
#if defined(__SANITIZE_THREAD__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wtsan"
#endif
  std::atomic_thread_fence(std::memory_order_seq_cst);
#if defined(__SANITIZE_THREAD__)
#pragma GCC diagnostic pop
#endif
}

inline void compiler_barrier() { std::atomic_signal_fence(std::memory_order_seq_cst); }

/// Lets other processes' and threads' membarrier_everywhere() order this process's memory too.
/// Returns false if the kernel or a seccomp filter refuses.
inline bool join_membarrier() {
  return ::syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED, 0, 0) == 0;
}
/// Acts as a full fence here and on every thread of the processes that joined: their earlier stores
/// are seen after it, and they see earlier stores from here. It takes less than half a microsecond.
inline void membarrier_everywhere() {
  if (::syscall(SYS_membarrier, MEMBARRIER_CMD_GLOBAL_EXPEDITED, 0, 0) != 0) full_fence();
}

/// Sleeps while *word == seen, for at most `ms`. It is the raw shared futex, which works between
/// processes and survives a killed owner.
inline void futex_wait(std::atomic<uint32_t>* word, uint32_t seen, int ms) {
  timespec t{ms / 1000, (ms % 1000) * 1000000L};
  ::syscall(SYS_futex, word, FUTEX_WAIT, seen, &t, nullptr, 0);
}

inline void futex_wake(std::atomic<uint32_t>* word) {
  ::syscall(SYS_futex, word, FUTEX_WAKE, 1, nullptr, nullptr, 0);
}

/// Returns the CPUs that cgroups (v2 cpu.max, v1 cfs_quota_us) allow this process; 1e9 without a
/// limit. Files are read below `root`.
TRIREME_API double cgroup_cpus(const std::string& root = "");

/// Reads the CPUs that the calling thread may run on, as a bit mask.
TRIREME_API void read_cpu_mask(uint64_t (&mask)[16]);

}  // namespace trireme::local
