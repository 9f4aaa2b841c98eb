// SPDX-License-Identifier: Apache-2.0
#include "cli/sbatch.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>

#include "trireme/base/check.h"
#include "trireme/base/fd.h"
#include "trireme/launch/process/process.h"
#include "trireme/launch/worker_env.h"

namespace trireme {
namespace {

std::string program() {
  try {
    return launch::find_program("sbatch");
  } catch (const UsageError&) {
    fail<UsageError>(
        "--submit: there is no sbatch in PATH: print the script without --submit, and give it to "
        "sbatch where Slurm is");
  }
}

struct Pipe {
  UniqueFd out, in;
  Pipe() {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0) fail<ResourceError>("pipe: {}", errno_text());
    out.reset(ends[0]);
    in.reset(ends[1]);
  }
};

/// sbatch may leave before it has read all: its exit code says why.
void write_all(int fd, const std::string& text) {
  for (size_t at = 0; at < text.size();) {
    const ssize_t n = ::write(fd, text.data() + at, text.size() - at);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return;
    at += static_cast<size_t>(n);
  }
}

std::string read_all(int fd) {
  std::string text;
  char buffer[4096];
  while (true) {
    const ssize_t n = ::read(fd, buffer, sizeof buffer);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return text;
    text.append(buffer, static_cast<size_t>(n));
  }
}

}  // namespace

int submit(const std::string& script) {
  ::signal(SIGPIPE, SIG_IGN);
  Pipe to, from;
  launch::ProcessSpec child;
  child.program = program();
  child.argv = {"sbatch", "--parsable"};
  child.env = launch::merged_environment({});
  child.stdin_fd = to.out.get();
  child.stdout_fd = from.in.get();
  child.default_signals = {SIGPIPE};
  ::sigprocmask(SIG_SETMASK, nullptr, &child.mask);
  const pid_t pid = launch::start_process(child);
  to.out.reset();
  from.in.reset();
  write_all(to.in.get(), script);
  to.in.reset();
  std::string said = read_all(from.out.get());
  int status = 0;
  while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  if (WIFSIGNALED(status)) return kExitSignalBase + WTERMSIG(status);
  if (WEXITSTATUS(status) == 0) said = said.substr(0, said.find_first_of(";\n")) + "\n";
  std::fwrite(said.data(), 1, said.size(), WEXITSTATUS(status) == 0 ? stdout : stderr);
  return WEXITSTATUS(status);
}

}  // namespace trireme
