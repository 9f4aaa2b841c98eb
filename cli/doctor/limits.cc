// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <sys/resource.h>

#include <filesystem>

#include "cli/doctor/advice.h"
#include "cli/doctor/sections.h"
#include "trireme/launch/process/proc_text.h"

namespace trireme::doctor {
namespace {

uint64_t soft(int resource, uint64_t* hard = nullptr) {
  rlimit limit{};
  ::getrlimit(static_cast<__rlimit_resource>(resource), &limit);
  const auto value = [](rlim_t v) { return v == RLIM_INFINITY ? UINT64_MAX : uint64_t{v}; };
  if (hard) *hard = value(limit.rlim_max);
  return value(limit.rlim_cur);
}

std::string text_of_count(uint64_t count) {
  return count == UINT64_MAX ? "unlimited" : std::to_string(count);
}

/// The tightest of this cgroup and those above it, with what is used of it.
void tightest(const char* controller, const char* limit_file, const char* used_file,
              std::optional<uint64_t>& limit, uint64_t& used) {
  launch::walk_cgroups("", controller, [&](const std::string& folder) {
    const auto text = launch::read_if_there(folder + "/" + limit_file);
    const auto value = text ? cgroup_limit(*text) : std::nullopt;
    if (value && (!limit || *value < *limit)) {
      limit = value;
      used = cgroup_limit(launch::read_if_there(folder + "/" + used_file).value_or("")).value_or(0);
    }
    return true;
  });
}

ordered_json json_of(uint64_t value) {
  return value == UINT64_MAX ? ordered_json(nullptr) : ordered_json(value);
}

}  // namespace

Section limits() {
  Section s("limits");
  Limits l;
  l.memlock = soft(RLIMIT_MEMLOCK);
  l.files = soft(RLIMIT_NOFILE, &l.hard_files);
  const uint64_t processes = soft(RLIMIT_NPROC), address = soft(RLIMIT_AS);
  tightest("", "memory.max", "memory.current", l.memory, l.memory_used);
  tightest("memory", "memory.limit_in_bytes", "memory.usage_in_bytes", l.memory, l.memory_used);
  tightest("", "pids.max", "pids.current", l.pids, l.pids_used);
  tightest("pids", "pids.max", "pids.current", l.pids, l.pids_used);
  std::error_code error;
  l.infiniband = std::filesystem::exists("/sys/class/infiniband", error);
  s.json = {{"memlock", json_of(l.memlock)},
            {"open_files", json_of(l.files)},
            {"open_files_hard", json_of(l.hard_files)},
            {"processes", json_of(processes)},
            {"address_space", json_of(address)},
            {"infiniband", l.infiniband},
            {"cgroup_memory", l.memory ? ordered_json(*l.memory) : ordered_json(nullptr)},
            {"cgroup_memory_used", l.memory_used},
            {"cgroup_pids", l.pids ? ordered_json(*l.pids) : ordered_json(nullptr)}};
  s.row("open files",
        fmt::format("{} (up to {})", text_of_count(l.files), text_of_count(l.hard_files)));
  s.row("locked memory", text_of_bytes(l.memlock));
  s.row("processes", text_of_count(processes));
  if (address != UINT64_MAX) {
    s.row("address space", text_of_bytes(address));
    s.find(fmt::format("the address space of a process is limited to {}; shared memory of all "
                       "ranks is mapped into each",
                       text_of_bytes(address)),
           "ulimit -v unlimited");
  }
  s.row("cgroup",
        fmt::format("memory {}, processes {}",
                    l.memory ? fmt::format("{} ({} taken)", text_of_bytes(*l.memory),
                                           text_of_bytes(l.memory_used))
                             : "not limited",
                    l.pids ? fmt::format("{} ({} there)", *l.pids, l.pids_used) : "not limited"));
  const Findings more = advise(l);
  s.findings.insert(s.findings.end(), more.begin(), more.end());
  return s;
}

}  // namespace trireme::doctor
