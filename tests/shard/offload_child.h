// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <string>

#include "tests/support/memory_limit.h"
#include "tests/support/ranks.h"
#include "tests/support/refusals.h"
#include "trireme/base/check.h"
#include "trireme/base/fd.h"
#include "trireme/base/file.h"

// A process of its own with less than it would like: no io_uring, a small disk, little memory.
namespace trireme::testing {

/// Forks; what the body threw ("Kind: text"), "" where nothing, "signal N", or "hung".
inline std::string in_child(const std::function<void()>& body) {
  int ends[2];
  if (::pipe(ends) != 0) fail<ResourceError>("pipe: {}", errno_text());
  UniqueFd in(ends[0]), out(ends[1]);
  const pid_t parent = ::getpid(), pid = ::fork();
  check<ResourceError>(pid >= 0, "fork: {}", errno_text());
  if (pid == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != parent) ::_exit(1);
    const std::string text = outcome_of(body);
    [[maybe_unused]] auto n = ::write(out.get(), text.data(), text.size());
    ::_exit(0);
  }
  out.reset();
  const Deadline deadline = Deadline::after(std::chrono::seconds(60));
  int status = 0;
  while (::waitpid(pid, &status, WNOHANG) == 0) {
    if (deadline.expired()) ::kill(pid, SIGKILL);
    ::usleep(500);
  }
  if (deadline.expired()) return "hung";
  if (WIFSIGNALED(status)) return "signal " + std::to_string(WTERMSIG(status));
  std::string text(1 << 14, '\0');
  const ssize_t n = ::read(in.get(), text.data(), text.size());
  text.resize(n > 0 ? static_cast<size_t>(n) : 0);
  return text;
}

/// From here on this call of this process fails.
inline void deny(int call, int error) {
  sock_filter filter[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<uint32_t>(call), 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | static_cast<uint32_t>(error)),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
  sock_fprog program{4, filter};
  if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
      ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0)
    fail<ResourceError>("seccomp: {}", errno_text());
}

/// A tmpfs that this process alone sees. "": mounted; else why not.
inline std::string mount_small_disk(const std::string& path, const std::string& options) {
  if (::unshare(CLONE_NEWNS) != 0) return "unshare: " + errno_text();
  if (::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0)
    return "mount: " + errno_text();
  std::filesystem::create_directory(path);
  if (::mount("tmpfs", path.c_str(), "tmpfs", 0, options.c_str()) != 0)
    return "mount: " + errno_text();
  return "";
}

/// The process's file without a name in `folder`, opened anew and through the page cache.
inline UniqueFd nameless_file(const std::string& folder) {
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code error;
    const std::string target = std::filesystem::read_symlink(entry.path(), error).string();
    if (target.rfind(folder + "/", 0) == 0 && has(target, "(deleted)"))
      return UniqueFd(::open(entry.path().c_str(), O_RDWR | O_CLOEXEC));
  }
  fail<Error>("no nameless file in {}", folder);
}

inline void flip_byte(const std::string& folder, uint64_t at) {
  const UniqueFd fd = nameless_file(folder);
  char byte = 0;
  const auto offset = static_cast<off_t>(at);
  if (::pread(fd.get(), &byte, 1, offset) != 1) fail<Error>("pread: {}", errno_text());
  byte = static_cast<char>(byte ^ 0x10);
  if (::pwrite(fd.get(), &byte, 1, offset) != 1 || ::fsync(fd.get()) != 0)
    fail<Error>("pwrite: {}", errno_text());
}

}  // namespace trireme::testing
