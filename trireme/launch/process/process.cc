// SPDX-License-Identifier: Apache-2.0
#include "trireme/launch/process/process.h"

#include <fcntl.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>

#include "trireme/base/check.h"
#include "trireme/base/fd.h"
#include "trireme/launch/flags/text.h"

namespace trireme::launch {
namespace {

std::vector<char*> pointers(const std::vector<std::string>& words) {
  std::vector<char*> result;
  for (const auto& word : words) result.push_back(const_cast<char*>(word.c_str()));
  result.push_back(nullptr);
  return result;
}

struct CpuSet {
  explicit CpuSet(const std::vector<int>& cpus) {
    if (cpus.empty()) return;
    size_t bits = static_cast<size_t>(*std::max_element(cpus.begin(), cpus.end())) + 1;
    set = CPU_ALLOC(bits);
    bytes = CPU_ALLOC_SIZE(bits);
    CPU_ZERO_S(bytes, set);
    for (int cpu : cpus) CPU_SET_S(static_cast<size_t>(cpu), bytes, set);
  }
  ~CpuSet() {
    if (set) CPU_FREE(set);
  }
  CpuSet(const CpuSet&) = delete;
  cpu_set_t* set = nullptr;
  size_t bytes = 0;
};

// Everything after fork: only async-signal-safe calls, since the launcher may have threads.
struct Child {
  const ProcessSpec& spec;
  char** argv;
  char** env;
  const CpuSet& cpus;
  pid_t parent;
  int report;  // close-on-exec: an errno written here is an exec that failed

  [[noreturn]] void run() const {
    ::setpgid(0, 0);
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != parent) ::_exit(127);  // it died before the line above
    put(spec.stdin_fd, 0);
    put(spec.stdout_fd, 1);
    put(spec.stderr_fd, 2);
    // A process group in the background may not stop because its terminal has `stty tostop`.
    if (::isatty(1) || ::isatty(2)) ::signal(SIGTTOU, SIG_IGN);
    for (int n : spec.default_signals) ::signal(n, SIG_DFL);
    if (cpus.set && ::sched_setaffinity(0, cpus.bytes, cpus.set) != 0) stop();
    ::sigprocmask(SIG_SETMASK, &spec.mask, nullptr);
    ::execve(spec.program.c_str(), argv, env);
    stop();
  }

 private:
  void put(int from, int to) const {
    if (from >= 0 && ::dup2(from, to) < 0) stop();
  }
  [[noreturn]] void stop() const {
    int code = errno;
    [[maybe_unused]] auto written = ::write(report, &code, sizeof code);
    ::_exit(127);
  }
};

}  // namespace

pid_t start_process(const ProcessSpec& spec) {
  auto argv = pointers(spec.argv);
  auto env = pointers(spec.env);
  CpuSet cpus(spec.cpus);
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) fail<ResourceError>("cannot make a pipe: {}", errno_text());
  UniqueFd in(ends[0]), out(ends[1]);
  Child child{spec, argv.data(), env.data(), cpus, ::getpid(), out.get()};
  pid_t pid = ::fork();
  check<ResourceError>(pid >= 0,
                       "cannot start {}: {}; see 'ulimit -u' and the pids limit of the cgroup",
                       spec.program, errno_text());
  if (pid == 0) child.run();
  ::setpgid(pid, pid);  // here too: a signal sent from now on must find the group
  out.reset();
  int code = 0;
  ssize_t n;
  do n = ::read(in.get(), &code, sizeof code);
  while (n < 0 && errno == EINTR);
  if (n == static_cast<ssize_t>(sizeof code)) {
    while (::waitpid(pid, nullptr, 0) < 0 && errno == EINTR) {
    }
    if (code == ENOEXEC)
      fail<UsageError>("cannot start {}: not a program, and no #! line names its interpreter",
                       spec.program);
    if (code == EINVAL && !spec.cpus.empty())
      fail<UsageError>("cannot start {} on the CPUs chosen for it: {}; use --cpu-binding none",
                       spec.program, errno_text(code));
    fail<UsageError>("cannot start {}: {}", spec.program, errno_text(code));
  }
  return pid;
}

std::string find_program(const std::string& name) {
  auto is_file = [](const std::string& path) {
    struct stat st {};
    return ::stat(path.c_str(), &st) == 0 && S_ISREG(st.st_mode);
  };
  if (name.find('/') != std::string::npos) {
    if (::access(name.c_str(), F_OK) != 0)
      fail<UsageError>("cannot start {}: {}", name, errno_text());
    check<UsageError>(is_file(name), "cannot start {}: it is not a file", name);
    check<UsageError>(::access(name.c_str(), X_OK) == 0,
                      "cannot start {}: it is not executable (chmod +x makes it so)", name);
    return name;
  }
  const char* path = ::getenv("PATH");
  for (auto folder : split(path ? path : "/usr/local/bin:/usr/bin:/bin", ':')) {
    std::string candidate = std::string(folder.empty() ? "." : folder) + "/" + name;
    if (is_file(candidate) && ::access(candidate.c_str(), X_OK) == 0) return candidate;
  }
  check<UsageError>(!is_file(name),
                    "cannot find a program {} in PATH; there is a file of that name "
                    "here: write ./{}",
                    name, name);
  fail<UsageError>("cannot find a program {} in PATH", name);
}

}  // namespace trireme::launch
