// SPDX-License-Identifier: Apache-2.0
#include "trireme/launch/machine/oom.h"

#include <fmt/core.h>

#include <optional>

#include "trireme/launch/flags/text.h"
#include "trireme/launch/process/proc_text.h"

namespace trireme::launch {
namespace {

// "name 12" lines, as memory.events, memory.oom_control and vmstat have them.
std::optional<int64_t> counter(const std::string& path, std::string_view name) {
  auto text = read_if_there(path);
  if (!text) return std::nullopt;
  for (auto line : split(*text, '\n')) {
    auto fields = split(line, ' ');
    if (fields.size() == 2 && fields[0] == name) return parse_int(fields[1]);
  }
  return std::nullopt;
}

std::string limit_text(const std::string& path) {
  auto text = read_if_there(path);
  auto bytes = text ? parse_int(trim(*text)) : std::nullopt;
  if (!bytes || *bytes <= 0 || *bytes > (int64_t{1} << 60)) return "";  // "max", or v1's no limit
  return fmt::format("{} MiB", *bytes >> 20);
}

}  // namespace

OomCount read_oom_count(const std::string& root) {
  OomCount result;
  auto take = [&](const std::string& file, const std::string& limit) {
    auto kills = counter(file, "oom_kill");
    if (!kills) return true;
    result = {*kills, file, limit_text(limit)};
    return false;
  };
  walk_cgroups(root, "", [&](const std::string& folder) {
    return take(folder + "/memory.events", folder + "/memory.max");
  });
  if (result.where.empty())
    walk_cgroups(root, "memory", [&](const std::string& folder) {
      return take(folder + "/memory.oom_control", folder + "/memory.limit_in_bytes");
    });
  if (result.where.empty()) take(root + "/proc/vmstat", "");
  return result;
}

std::string oom_note(const OomCount& before, const OomCount& after) {
  if (after.where.empty() || after.where != before.where || after.kills <= before.kills) return "";
  return fmt::format(
      "killed by the kernel for want of memory ({} counts {} more, {}): use fewer "
      "ranks or smaller batches, or allow more memory",
      after.where, after.kills - before.kills,
      after.limit.empty() ? "no limit of its own" : "limit " + after.limit);
}

}  // namespace trireme::launch
