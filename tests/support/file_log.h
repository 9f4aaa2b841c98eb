// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <fstream>
#include <functional>
#include <sstream>
#include <string>
#include <vector>

#include "trireme/base/check.h"
#include "trireme/base/file.h"
#include "trireme/base/file/file_faults.h"

// What base/file/file_faults.h makes the file system do, and what it writes down, for tests.
namespace trireme::testing {

/// A plan of this process, for as long as the object lives.
struct FileFaults {
  explicit FileFaults(const std::string& text) { set_file_faults(text); }
  ~FileFaults() { set_file_faults(""); }
  FileFaults(const FileFaults&) = delete;
};

/// A line of `count` or `record`.
struct LoggedCall {
  int64_t number = 0;
  int rank = -1;
  std::string kind;
  int64_t result = 0;
  bool truncates = false;
  int64_t offset = -1, data_at = -1;
  std::string path, to;

  bool moves_bytes() const {
    return kind.ends_with("read") || kind.ends_with("write") || kind == "pread-cached";
  }
  bool syncs() const { return kind == "fsync" || kind == "fdatasync"; }
};

inline std::vector<LoggedCall> read_file_log(const std::string& path) {
  std::vector<LoggedCall> calls;
  std::istringstream text(read_file(path));
  for (std::string line; std::getline(text, line);) {
    std::vector<std::string> parts;
    std::istringstream fields(line);
    for (std::string part; std::getline(fields, part, '\t');) parts.push_back(part);
    parts.resize(9);
    calls.push_back({std::stoll(parts[0]), std::stoi(parts[1]), parts[2], std::stoll(parts[3]),
                     parts[4] == "1", std::stoll(parts[5]), std::stoll(parts[6]), parts[7],
                     parts[8]});
  }
  return calls;
}

/// The calls of `body` on paths that contain `only`.
inline std::vector<LoggedCall> calls_of(const std::string& only,
                                        const std::function<void()>& body) {
  PrivateFolder folder;
  const std::string log = folder / "calls";
  const FileFaults faults("only=" + only + ",count=" + log);
  body();
  return read_file_log(log);
}

/// How a child ended that was forked (the caller has no other threads) and did `body` under the
/// plan `faults`: "" if all was well, "killed", or what it threw, as "Kind: text".
inline std::string end_of_child(const std::string& faults, const std::function<void()>& body) {
  PrivateFolder said;
  const std::string file = said / "said";
  const pid_t pid = ::fork();
  check<Error>(pid >= 0, "fork: {}", errno_text());
  if (pid == 0) {
    ::alarm(60);
    std::string text;
    try {
      set_file_faults(faults);
      body();
    } catch (const Error& e) {
      text = std::string(e.kind()) + ": " + e.what();
    } catch (const std::exception& e) {
      text = std::string("exception: ") + e.what();
    }
    set_file_faults("");
    std::ofstream(file) << text;
    ::_exit(0);
  }
  int status = 0;
  if (::waitpid(pid, &status, 0) != pid) fail<Error>("waitpid: {}", errno_text());
  if (WIFEXITED(status) && WEXITSTATUS(status) != 0)
    return fmt::format("exit {}", WEXITSTATUS(status));
  if (WIFSIGNALED(status))
    return WTERMSIG(status) == SIGKILL ? "killed" : fmt::format("signal {}", WTERMSIG(status));
  return read_file(file);
}

}  // namespace trireme::testing
