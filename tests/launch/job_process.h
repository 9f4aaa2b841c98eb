// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <string>
#include <vector>

#include "trireme/base/clock.h"
#include "trireme/base/error.h"
#include "trireme/base/fd.h"
#include "trireme/base/log.h"
#include "trireme/launch/launch.h"

// A launcher in a process of its own, as the command line makes one, with both of its streams read
// here.
namespace trireme::launch {

class JobProcess {
 public:
  /// Runs `body` in a forked process, which exits with its result.
  explicit JobProcess(const std::function<int()>& body) {
    int out[2], err[2];
    if (::pipe2(out, O_CLOEXEC) != 0 || ::pipe2(err, O_CLOEXEC) != 0) return;
    pid_ = ::fork();
    if (pid_ == 0) {
      ::setpgid(0, 0);
      ::dup2(out[1], 1);
      ::dup2(err[1], 2);
      for (int fd : {out[0], out[1], err[0], err[1]}) ::close(fd);
      set_log_level(LogLevel::info);
      int code = 99;
      try {
        code = body();
      } catch (const std::exception& error) {
        log_error("{}", error.what());
      }
      ::_exit(code);
    }
    ::close(out[1]);
    ::close(err[1]);
    out_.reset(out[0]);
    err_.reset(err[0]);
  }
  /// `trireme run FLAGS… /bin/sh -c SCRIPT`.
  JobProcess(std::vector<std::string> flags, const std::string& script)
      : JobProcess([flags, script] {
          return launch_workers(parse_run_options(flags), {"/bin/sh", "-c", script});
        }) {}
  ~JobProcess() {
    if (pid_ > 0 && !ended_) {
      ::kill(pid_, SIGKILL);
      ::waitpid(pid_, nullptr, 0);
    }
  }
  JobProcess(const JobProcess&) = delete;

  pid_t pid() const { return pid_; }
  void send(int signal) const { ::kill(pid_, signal); }

  /// Reads until stdout holds `text` `times` times; false: not within `patience`.
  bool wait_for(const std::string& text, int times = 1,
                Duration patience = std::chrono::seconds(15)) {
    return read_until(out_text, text, times, patience);
  }
  /// The same of stderr.
  bool wait_for_error(const std::string& text, Duration patience = std::chrono::seconds(15)) {
    return read_until(err_text, text, 1, patience);
  }

  /// True when nobody holds the streams any more: the launcher and all that it started are gone.
  bool wait_for_silence(Duration patience = std::chrono::seconds(15)) {
    auto deadline = Deadline::after(patience);
    while (out_ || err_) {
      if (deadline.expired()) return false;
      read_some(deadline.poll_ms(100));
    }
    return true;
  }

  /// The exit code (128+n by signal), or -1 if it, or a process of the job, is still there after
  /// `patience`.
  int wait(Duration patience = std::chrono::seconds(15)) {
    if (!wait_for_silence(patience)) return -1;
    int status = 0;
    ::waitpid(pid_, &status, 0);
    ended_ = true;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }

  static int count(const std::string& text, const std::string& part) {
    int n = 0;
    for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++n;
    return n;
  }

  std::string out_text, err_text;

 private:
  bool read_until(const std::string& stream, const std::string& text, int times,
                  Duration patience) {
    auto deadline = Deadline::after(patience);
    while (count(stream, text) < times) {
      if (deadline.expired() || (!out_ && !err_)) return false;
      read_some(deadline.poll_ms(100));
    }
    return true;
  }
  void read_some(int ms) {
    pollfd fds[] = {{out_ ? out_.get() : -1, POLLIN, 0}, {err_ ? err_.get() : -1, POLLIN, 0}};
    if (::poll(fds, 2, ms) <= 0) return;
    if (fds[0].revents) take(out_, out_text);
    if (fds[1].revents) take(err_, err_text);
  }
  static void take(UniqueFd& fd, std::string& text) {
    char buffer[4096];
    ssize_t n = ::read(fd.get(), buffer, sizeof buffer);
    if (n > 0)
      text.append(buffer, static_cast<size_t>(n));
    else
      fd.reset();
  }

  pid_t pid_ = -1;
  bool ended_ = false;
  UniqueFd out_, err_;
};

}  // namespace trireme::launch
