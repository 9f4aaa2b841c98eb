// SPDX-License-Identifier: Apache-2.0
#include "trireme/launch/process/children.h"

#include <dirent.h>
#include <unistd.h>

#include <algorithm>
#include <optional>
#include <string>

#include "trireme/launch/flags/text.h"
#include "trireme/launch/process/proc_text.h"

namespace trireme::launch {
namespace {

struct Stat {
  char state = 'Z';
  pid_t parent = -1;
  pid_t group = -1;
};

std::optional<Stat> read_stat(pid_t pid) {
  auto text = read_if_there("/proc/" + std::to_string(pid) + "/stat");
  if (!text) return std::nullopt;
  auto name_end = text->rfind(')');  // pid (any name) state ppid pgrp …
  if (name_end == std::string::npos) return std::nullopt;
  auto fields = split(std::string_view(*text).substr(name_end + 1), ' ');
  if (fields.size() < 4 || fields[1].empty()) return std::nullopt;
  return Stat{fields[1][0], static_cast<pid_t>(parse_int(fields[2]).value_or(-1)),
              static_cast<pid_t>(parse_int(fields[3]).value_or(-1))};
}

}  // namespace

std::vector<pid_t> all_processes() {
  std::vector<pid_t> pids;
  DIR* folder = ::opendir("/proc");
  if (!folder) return pids;
  while (const dirent* entry = ::readdir(folder))
    if (auto pid = parse_int(entry->d_name)) pids.push_back(static_cast<pid_t>(*pid));
  ::closedir(folder);
  return pids;
}

std::vector<pid_t> children_of_this_process() {
  std::vector<pid_t> children;
  for (pid_t pid : all_processes()) {
    auto stat = read_stat(pid);
    if (stat && stat->parent == ::getpid()) children.push_back(pid);
  }
  return children;
}

bool is_stopped(pid_t pid) {
  const auto stat = read_stat(pid);
  return stat && (stat->state == 'T' || stat->state == 't');
}

bool lives(pid_t pid) {
  const auto stat = read_stat(pid);
  return stat && stat->state != 'Z' && stat->state != 'X';
}

int living_in_groups(const std::vector<pid_t>& groups) {
  int count = 0;
  for (pid_t pid : all_processes()) {
    auto stat = read_stat(pid);
    if (stat && stat->state != 'Z' && stat->state != 'X' &&
        std::find(groups.begin(), groups.end(), stat->group) != groups.end())
      ++count;
  }
  return count;
}

}  // namespace trireme::launch
