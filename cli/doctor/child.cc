// SPDX-License-Identifier: Apache-2.0
#include "cli/doctor/child.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>

#include "trireme/base/check.h"
#include "trireme/base/fd.h"
#include "trireme/launch/process/process.h"
#include "trireme/launch/worker_env.h"

namespace trireme::doctor {

Answer ask(const std::vector<std::string>& command, Duration patience,
           const std::vector<std::pair<std::string, std::string>>& env) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return {"", "pipe: " + errno_text()};
  UniqueFd in(ends[0]), out(ends[1]), nothing(::open("/dev/null", O_RDWR | O_CLOEXEC));
  launch::ProcessSpec child;
  child.program = command[0];
  child.argv = command;
  launch::EnvMap changes;
  for (const auto& [name, value] : env)
    if (!value.empty()) changes[name] = value;
  child.env = launch::merged_environment(changes);
  child.stdin_fd = nothing.get();
  child.stdout_fd = out.get();
  child.stderr_fd = nothing.get();
  ::sigprocmask(SIG_SETMASK, nullptr, &child.mask);
  pid_t pid = -1;
  try {
    pid = launch::start_process(child);
  } catch (const Error& e) {
    return {"", e.what()};
  }
  out.reset();
  Answer answer;
  const auto deadline = Deadline::after(patience);
  bool whole = false;
  while (!whole && !deadline.expired()) {
    pollfd ready{in.get(), POLLIN, 0};
    if (::poll(&ready, 1, deadline.poll_ms(1000)) <= 0) continue;
    char buffer[4096];
    const ssize_t n = ::read(in.get(), buffer, sizeof buffer);
    if (n <= 0) whole = true;
    if (n > 0) answer.text.append(buffer, static_cast<size_t>(n));
  }
  if (!whole) ::kill(pid, SIGKILL);
  int status = 0;
  while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  if (!whole)
    answer.failed = "no answer in time";
  else if (WIFSIGNALED(status))
    answer.failed = fmt::format("ended by signal {}", WTERMSIG(status));
  else if (WEXITSTATUS(status) != 0)
    answer.failed = fmt::format("exit code {}", WEXITSTATUS(status));
  return answer;
}

}  // namespace trireme::doctor
