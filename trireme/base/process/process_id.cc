// SPDX-License-Identifier: Apache-2.0
#include "trireme/base/process/process_id.h"

#include <signal.h>
#include <sys/types.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <sstream>

namespace trireme {
namespace {

std::string all_of(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

std::string own_host() {
  char name[256] = "";
  return ::gethostname(name, sizeof name - 1) == 0 ? name : "";
}

/// A name that many machines have says nothing about which one it is.
bool is_a_name_of_many(const std::string& host) {
  return host.empty() || host == "localhost" || host.rfind("localhost.", 0) == 0 ||
         host == "(none)";
}

}  // namespace

std::optional<int64_t> start_of_process(int64_t pid) {
  if (pid <= 0) return std::nullopt;
  const std::string text = all_of("/proc/" + std::to_string(pid) + "/stat");
  if (text.empty()) {  // /proc may hide the processes of others
    const bool there = ::kill(static_cast<pid_t>(pid), 0) == 0 || errno == EPERM;
    return there ? std::optional<int64_t>(-1) : std::nullopt;
  }
  const auto name_end = text.rfind(')');  // pid (any name) state ppid …: the start is field 22
  if (name_end == std::string::npos) return -1;
  std::istringstream fields(text.substr(name_end + 1));
  std::string state, skipped;
  fields >> state;
  for (int field = 4; field < 22; ++field) fields >> skipped;
  if (state == "Z" || state == "X") return std::nullopt;
  int64_t start = -1;
  return fields >> start ? start : -1;
}

ProcessId own_process_id() {
  ProcessId id;
  id.host = own_host();
  std::getline(std::ifstream("/proc/sys/kernel/random/boot_id"), id.boot);
  std::error_code error;
  id.pid_space = std::filesystem::read_symlink("/proc/self/ns/pid", error).string();
  id.pid = ::getpid();
  id.start = start_of_process(id.pid).value_or(-1);
  return id;
}

Presence presence_of(const ProcessId& who, const ProcessId& self,
                     std::optional<int64_t> start_now) {
  const bool boot_known = !who.boot.empty() && !self.boot.empty();
  const bool same_kernel = boot_known ? who.boot == self.boot : who.host == self.host;
  if (!same_kernel)
    return who.host == self.host && !is_a_name_of_many(who.host) ? Presence::dead
                                                                 : Presence::elsewhere;
  if (who.pid_space != self.pid_space) return Presence::hidden;
  if (!start_now) return Presence::dead;
  return *start_now == who.start || *start_now < 0 || who.start < 0 ? Presence::alive
                                                                    : Presence::dead;
}

Presence presence_of(const ProcessId& who) {
  return presence_of(who, own_process_id(), start_of_process(who.pid));
}

}  // namespace trireme
