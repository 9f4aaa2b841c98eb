// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <dirent.h>
#include <signal.h>
#include <unistd.h>

#include <cctype>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "trireme/base/clock.h"

// Who runs on this machine, as /proc tells. What a test started is known by a word in its
// environment that every descendant inherits, so that nothing is ever looked for by name.
namespace trireme::testing {

inline std::string read_proc(pid_t pid, const char* file) {
  std::ifstream in("/proc/" + std::to_string(pid) + "/" + file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

/// Entries of a folder in /proc that are numbers.
inline std::vector<int> numbers_in(const std::string& folder) {
  std::vector<int> found;
  DIR* dir = ::opendir(folder.c_str());
  if (!dir) return found;
  while (const dirent* entry = ::readdir(dir))
    if (std::isdigit(static_cast<unsigned char>(entry->d_name[0])))
      found.push_back(std::stoi(entry->d_name));
  ::closedir(dir);
  return found;
}

/// Does the process have NAME=VALUE in the environment that it was started with? A zombie has none.
inline bool has_variable(pid_t pid, const std::string& assignment) {
  const std::string text = '\0' + read_proc(pid, "environ") + '\0';
  return text.find('\0' + assignment + '\0') != std::string::npos;
}

inline std::vector<pid_t> processes_with(const std::string& assignment) {
  std::vector<pid_t> found;
  for (pid_t pid : numbers_in("/proc"))
    if (pid != ::getpid() && has_variable(pid, assignment)) found.push_back(pid);
  return found;
}

inline std::string program_of(pid_t pid) {
  std::error_code error;
  std::string name = std::filesystem::read_symlink("/proc/" + std::to_string(pid) + "/exe", error)
                         .filename()
                         .string();
  const std::string gone = " (deleted)";  // built anew while it runs
  if (name.ends_with(gone)) name.resize(name.size() - gone.size());
  return name;
}

/// kill(2) for one process: a pid that was not found (-1) must never mean everybody.
inline bool send_signal(pid_t pid, int signal) { return pid > 1 && ::kill(pid, signal) == 0; }

inline char state_of(pid_t pid) {
  const std::string stat = read_proc(pid, "stat");
  const auto end = stat.rfind(')');
  return end == std::string::npos || end + 2 >= stat.size() ? '?' : stat[end + 2];
}

inline pid_t parent_of(pid_t pid) {
  const std::string stat = read_proc(pid, "stat");
  const auto end = stat.rfind(')');
  return end == std::string::npos ? -1 : std::atoi(stat.c_str() + end + 4);
}

/// Waits until `condition()` holds; false after `patience`.
template <class Condition>
bool eventually(const Condition& condition, Duration patience = std::chrono::seconds(15)) {
  const auto deadline = Deadline::after(patience);
  while (!condition()) {
    if (deadline.expired()) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return true;
}

/// Open descriptors of this process: taken before and after, what is new has leaked.
inline std::set<int> open_descriptors() {
  const auto all = numbers_in("/proc/self/fd");
  std::set<int> open;
  for (int fd : all)  // the listing's own is closed again
    if (std::filesystem::is_symlink("/proc/self/fd/" + std::to_string(fd))) open.insert(fd);
  return open;
}

}  // namespace trireme::testing
