// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

#include "tests/support/paths.h"
#include "tests/support/processes.h"
#include "trireme/base/clock.h"
#include "trireme/base/fd.h"
#include "trireme/base/file.h"

// A program that a test starts as a user would, with both streams read and a deadline on every
// wait.
namespace trireme::testing {

using Arguments = std::vector<std::string>;
/// Changes to the inherited environment; "" takes a variable away.
using Environment = std::map<std::string, std::string>;

struct CommandOptions {
  Environment env;
  std::string cwd;  // "": a private folder of its own
};

class Command {
 public:
  explicit Command(const Arguments& argv, const CommandOptions& options = {})
      : cookie_("TRIREME_TEST_COMMAND=" + folder_.path()) {
    std::filesystem::create_directory(folder_ / "tmp");
    std::filesystem::create_directory(folder_ / "work");
    const auto environment = environment_with(options.env);
    std::vector<char*> words, variables;
    for (const auto& word : argv) words.push_back(const_cast<char*>(word.c_str()));
    for (const auto& entry : environment) variables.push_back(const_cast<char*>(entry.c_str()));
    words.push_back(nullptr);
    variables.push_back(nullptr);
    const std::string cwd = options.cwd.empty() ? folder_ / "work" : options.cwd;

    int out[2], err[2];
    if (::pipe2(out, O_CLOEXEC) != 0) throw std::runtime_error("pipe2");
    out_.reset(out[0]);
    UniqueFd out_end(out[1]);
    if (::pipe2(err, O_CLOEXEC) != 0) throw std::runtime_error("pipe2");
    err_.reset(err[0]);
    UniqueFd err_end(err[1]);
    pid_ = ::fork();
    if (pid_ < 0) throw std::runtime_error("fork");
    if (pid_ == 0) {
      ::setpgid(0, 0);
      const int nothing = ::open("/dev/null", O_RDONLY);
      ::dup2(nothing, 0);
      ::dup2(out_end.get(), 1);
      ::dup2(err_end.get(), 2);
      ::close(nothing);
      if (::chdir(cwd.c_str()) == 0) ::execvpe(words[0], words.data(), variables.data());
      ::_exit(127);
    }
    ::setpgid(pid_, pid_);
  }

  /// Nothing of it survives the test.
  ~Command() {
    if (!reaped_) {
      send_signal(pid_, SIGKILL);
      ::waitpid(pid_, nullptr, 0);
    }
    eventually(  // one that was just starting another shows up in the next round
        [&] {
          const auto left = living();
          for (pid_t pid : left) send_signal(pid, SIGKILL);
          return left.empty();
        },
        std::chrono::seconds(5));
  }
  Command(const Command&) = delete;

  pid_t pid() const { return pid_; }
  void send(int signal) const {
    if (!reaped_) send_signal(pid_, signal);
  }

  /// This process and all that descend from it and still live.
  std::vector<pid_t> living() const { return processes_with(cookie_); }

  /// The process of `rank`, once it runs the worker; -1: not within `patience`. `variable` says how
  /// its launcher numbers ranks.
  pid_t rank(int rank, const std::string& variable = "RANK",
             Duration patience = std::chrono::seconds(20),
             const std::string& program = "trireme-worker") const {
    const std::string assignment = variable + "=" + std::to_string(rank);
    pid_t found = -1;
    eventually(
        [&] {
          for (pid_t pid : living())
            if (program_of(pid) == program && has_variable(pid, assignment)) found = pid;
          return found > 0;
        },
        patience);
    return found;
  }

  /// Reads until stdout or stderr holds `text`; false: not within `patience`.
  bool wait_for(const std::string& text, Duration patience = std::chrono::seconds(20)) {
    const auto deadline = Deadline::after(patience);
    while (out.find(text) == std::string::npos && err.find(text) == std::string::npos) {
      if (deadline.expired() || (!out_ && !err_)) return false;
      read_some(deadline.poll_ms(100));
    }
    return true;
  }

  /// Keeps reading, so that nobody blocks in a full pipe.
  void read_for(Duration time) {
    const auto deadline = Deadline::after(time);
    while (!deadline.expired()) read_some(deadline.poll_ms(20));
  }

  /// The exit code (128+n: ended by signal n) once it has ended and nobody holds its streams any
  /// more; -1: not within `patience`, and then it is killed.
  int finish(Duration patience = std::chrono::seconds(30)) {
    const auto deadline = Deadline::after(patience);
    while ((out_ || err_) && !deadline.expired()) read_some(deadline.poll_ms(100));
    int status = 0;
    if (!reaped_) {
      while (::waitpid(pid_, &status, WNOHANG) == 0) {
        if (deadline.expired()) return -1;
        read_some(2);
      }
      reaped_ = true;
      code_ = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    }
    return out_ || err_ ? -1 : code_;
  }

  /// True when no process of it is left, nor a file that it or its workers made in TMPDIR.
  bool left_nothing(Duration patience = std::chrono::seconds(10)) {
    return eventually(
        [&] { return living().empty() && std::filesystem::is_empty(folder_ / "tmp"); }, patience);
  }

  /// Its working folder, unless it was given another; gone with this object.
  std::string folder() const { return folder_ / "work"; }

  std::string out, err;

 private:
  std::vector<std::string> environment_with(const Environment& changes) const {
    // What a test runner, a launcher or a person has set must not decide how these programs behave.
    static const char* const kNotInherited[] = {"RANK", "WORLD_SIZE",  "MASTER_", "LOCAL_",
                                                "PET_", "TRIREME_",    "OMPI_",   "SLURM_",
                                                "PMI",  "TORCHELASTIC"};
    std::map<std::string, std::string> all;
    for (char** entry = environ; *entry; ++entry) {
      const std::string text(*entry);
      const auto equals = text.find('=');
      bool ours = equals != std::string::npos;
      for (const char* prefix : kNotInherited) ours = ours && text.rfind(prefix, 0) != 0;
      if (ours) all[text.substr(0, equals)] = text.substr(equals + 1);
    }
    all["TMPDIR"] = folder_ / "tmp";
    for (const auto& [name, value] : changes) {
      all[name] = value;
      if (value.empty()) all.erase(name);
    }
    std::vector<std::string> result{cookie_};
    for (const auto& [name, value] : all) result.push_back(name + "=" + value);
    return result;
  }

  void read_some(int ms) {
    pollfd fds[] = {{out_ ? out_.get() : -1, POLLIN, 0}, {err_ ? err_.get() : -1, POLLIN, 0}};
    if (::poll(fds, 2, ms) <= 0) return;
    if (fds[0].revents) take(out_, out);
    if (fds[1].revents) take(err_, err);
  }
  static void take(UniqueFd& fd, std::string& text) {
    char buffer[16384];
    const ssize_t n = ::read(fd.get(), buffer, sizeof buffer);
    if (n > 0)
      text.append(buffer, static_cast<size_t>(n));
    else
      fd.reset();
  }

  PrivateFolder folder_{"trireme-test"};
  std::string cookie_;
  pid_t pid_ = -1;
  bool reaped_ = false;
  int code_ = -1;
  UniqueFd out_, err_;
};

inline std::string trireme_program() { return trireme::testing::build_path("/bin/trireme"); }
inline std::string worker_program() {
  return trireme::testing::build_path("/libexec/trireme/trireme-worker");
}

/// `trireme ARGUMENTS…`
inline Arguments trireme(Arguments arguments) {
  arguments.insert(arguments.begin(), trireme_program());
  return arguments;
}

}  // namespace trireme::testing
