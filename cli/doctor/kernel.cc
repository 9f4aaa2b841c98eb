// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <fmt/format.h>
#include <linux/membarrier.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>

#include "cli/doctor/advice.h"
#include "cli/doctor/sections.h"
#include "trireme/base/check.h"
#include "trireme/base/fd.h"
#include "trireme/launch/flags/text.h"
#include "trireme/launch/process/proc_text.h"

namespace trireme::doctor {
namespace {

// Each is tried as the local engine uses it.

std::string try_memfd() {
  UniqueFd fd(::memfd_create("trireme-doctor", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd) return errno_text();
  if (::ftruncate(fd.get(), 4096) != 0) return errno_text();
  if (::fcntl(fd.get(), F_ADD_SEALS, F_SEAL_GROW | F_SEAL_SHRINK) != 0) return errno_text();
  void* p = ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
  if (p == MAP_FAILED) return errno_text();
  ::munmap(p, 4096);
  return "";
}

/// A child reads its parent: like a sibling, it is no ancestor of what it reads.
std::string try_process_vm_readv() {
  const pid_t parent = ::getpid();
  static char text[] = "trireme";
  const pid_t child = ::fork();
  if (child < 0) return errno_text();
  if (child == 0) {
    char got[sizeof text];
    iovec to{got, sizeof got}, from{text, sizeof text};
    const ssize_t n = ::process_vm_readv(parent, &to, 1, &from, 1, 0);
    ::_exit(n == static_cast<ssize_t>(sizeof got) ? 0 : n < 0 ? errno : EIO);
  }
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (WIFSIGNALED(status)) return fmt::format("signal {}", WTERMSIG(status));
  return WEXITSTATUS(status) == 0 ? "" : errno_text(WEXITSTATUS(status));
}

std::string try_membarrier() {
  return ::syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED, 0, 0) == 0
             ? ""
             : errno_text();
}

std::string try_pidfd() {
  UniqueFd fd(static_cast<int>(::syscall(SYS_pidfd_open, ::getpid(), 0)));
  return fd ? "" : errno_text();
}

}  // namespace

Section kernel() {
  Section s("kernel");
  KernelFeatures k;
  k.memfd = try_memfd();
  k.process_vm_readv = try_process_vm_readv();
  k.membarrier = try_membarrier();
  k.pidfd = try_pidfd();
  const auto yama = launch::read_if_there("/proc/sys/kernel/yama/ptrace_scope");
  k.ptrace_scope =
      yama ? static_cast<int>(launch::parse_int(launch::trim(*yama)).value_or(-1)) : -1;
  std::string text;
  for (const auto& [name, why] : {std::pair<const char*, std::string&>{"memfd", k.memfd},
                                  {"pidfd", k.pidfd},
                                  {"process_vm_readv", k.process_vm_readv},
                                  {"membarrier", k.membarrier}}) {
    s.json[name] = why.empty() ? ordered_json(true) : ordered_json(why);
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", name, why.empty() ? "yes" : "NO");
  }
  s.json["ptrace_scope"] = k.ptrace_scope;
  s.row("offers", text);
  s.findings = advise(k);
  return s;
}

}  // namespace trireme::doctor
