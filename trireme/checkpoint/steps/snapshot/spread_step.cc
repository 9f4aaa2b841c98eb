// SPDX-License-Identifier: Apache-2.0
#include "trireme/checkpoint/steps/snapshot/spread_step.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <tuple>
#include <utility>

namespace trireme {
namespace {

using SpreadKey = std::tuple<int64_t, std::string, std::string>;  // step, save, run folder

struct SpreadSave {
  int64_t world = 0;
  bool alike = true;  // who reports it says the same of it
  bool behind = false;
  std::map<int64_t, SpreadStep::Rank> ranks;
};

void add(SpreadSave& save, const SpreadPart& part, size_t host) {
  if (save.world == 0) save.world = part.world;
  save.alike = save.alike && part.world == save.world && part.rank >= 0 && part.rank < part.world;
  save.behind = save.behind || part.behind;
  SpreadStep::Rank& rank = save.ranks[part.rank];
  save.alike = save.alike && (rank.hosts.empty() || rank.bytes == part.bytes);
  rank.bytes = part.bytes;
  if (rank.hosts.empty() || rank.hosts.back() != host) rank.hosts.push_back(host);
}

std::string fault_in(const SpreadSave& save) {
  if (!save.alike) return "the hosts say different things of it";
  int64_t missing = 0;
  while (save.ranks.contains(missing)) ++missing;
  if (missing == save.world) return "";
  return fmt::format("nobody has what rank {} of {} had", missing, save.world);
}

bool has(const SpreadStep::Rank& rank, size_t host) {
  return std::binary_search(rank.hosts.begin(), rank.hosts.end(), host);
}

std::string fault_in_room(const SpreadStep& step, const std::vector<HostParts>& hosts) {
  for (size_t h = 0; h < hosts.size(); ++h) {
    uint64_t bytes = 0;
    for (const SpreadStep::Rank& rank : step.ranks)
      if (!has(rank, h)) bytes += std::min(rank.bytes, UINT64_MAX - bytes);
    // The ranks that load it need some, too.
    if (bytes > hosts[h].room / 2)
      return fmt::format(
          "node {} would have to take {} bytes of other nodes' ranks, and has {} bytes of memory "
          "left",
          h, bytes, hosts[h].room);
    for (size_t r = 0; r < step.ranks.size(); ++r) {
      const std::vector<size_t>& from = step.ranks[r].hosts;
      if (!has(step.ranks[r], h) && std::all_of(from.begin(), from.end(), [&](size_t other) {
            return hosts[other].address.empty();
          }))
        return fmt::format("node {} cannot give away what rank {} had", from.front(), r);
    }
  }
  return "";
}

}  // namespace

std::vector<size_t> sources_of(const SpreadStep::Rank& rank, size_t host) {
  if (has(rank, host)) return {host};
  std::vector<size_t> sources = rank.hosts;
  if (!sources.empty())
    std::rotate(sources.begin(), sources.begin() + static_cast<ptrdiff_t>(host % sources.size()),
                sources.end());
  return sources;
}

SpreadChoice choose_spread_step(const std::vector<HostParts>& hosts) {
  int64_t newest = -1;
  for (const HostParts& host : hosts) newest = std::max(newest, host.attempt);
  std::map<SpreadKey, SpreadSave> saves;
  for (size_t h = 0; h < hosts.size(); ++h)
    if (hosts[h].attempt == newest)
      for (const SpreadPart& part : hosts[h].parts)
        add(saves[{part.step, part.save, part.run_dir}], part, h);
  SpreadChoice choice;
  for (auto s = saves.rbegin(); s != saves.rend(); ++s) {
    auto& [key, save] = *s;
    // So are all that are older.
    if (save.behind) return {};
    std::string fault = fault_in(save);
    SpreadStep step;
    std::tie(step.step, step.save, step.run_dir) = key;
    if (fault.empty()) {
      for (auto& [rank, part] : save.ranks) step.ranks.push_back(std::move(part));
      fault = fault_in_room(step, hosts);
    }
    if (fault.empty()) return {std::move(step), ""};
    if (choice.why_not.empty()) choice.why_not = fmt::format("step {}: {}", step.step, fault);
  }
  return choice;
}

}  // namespace trireme
