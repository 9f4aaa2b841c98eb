// SPDX-License-Identifier: Apache-2.0
#include "trireme/base/process/process_mark.h"

#include <sys/mman.h>
#include <unistd.h>

#include "trireme/base/check.h"

namespace trireme {
namespace {

/// Of this process and, wiped to 0, of every child that it forks. One for each process by nature.
std::atomic<int>* page_of_process() {
  static std::atomic<int>* const page = []() -> std::atomic<int>* {
    const auto bytes = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
    void* p = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) return nullptr;
    if (::madvise(p, bytes, MADV_WIPEONFORK) == 0) return new (p) std::atomic<int>(0);
    ::munmap(p, bytes);  // before Linux 4.14
    return nullptr;
  }();
  return page;
}

}  // namespace

ProcessMark::ProcessMark() : page_(page_of_process()), pid_(::getpid()) {
  // In a child this makes what it makes itself its own, and its parent's no less strange.
  if (page_) page_of_process()->store(pid_, std::memory_order_relaxed);
}

bool ProcessMark::is_here_without_page() const { return ::getpid() == pid_; }

void ProcessMark::refuse(const char* what) const {
  fail<UsageError>(
      "{} belongs to process {}, and this is process {}, which was forked after it was made: its "
      "connections, shared memory and threads are the parent's, and using them here would corrupt "
      "what the parent computes. Make it after the fork, or start a new process (fork and exec, "
      "posix_spawn, trireme::spawn)",
      what, pid_, ::getpid());
}

}  // namespace trireme
