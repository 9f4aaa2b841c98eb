// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <vector>

// The arrangement of ranks on hosts, and how all_reduce is divided over it. Pure functions of
// integers.
namespace trireme::detail {

struct HostLayout {
  /// leader_of[r]: the lowest rank on rank r's host. Hosts are numbered by their leaders.
  explicit HostLayout(const std::vector<int>& leader_of) {
    std::map<int, int> number;
    for (int leader : leader_of) number.emplace(leader, 0);
    int next = 0;
    for (auto& [leader, host] : number) host = next++;
    ranks_on.resize(number.size());
    for (size_t r = 0; r < leader_of.size(); ++r) {
      const int host = number[leader_of[r]];
      host_of.push_back(host);
      local_index.push_back(static_cast<int>(ranks_on[static_cast<size_t>(host)].size()));
      ranks_on[static_cast<size_t>(host)].push_back(static_cast<int>(r));
    }
  }

  int hosts() const { return static_cast<int>(ranks_on.size()); }
  int size() const { return static_cast<int>(host_of.size()); }
  /// Whether all hosts have the same number of ranks.
  bool is_even() const {
    return std::all_of(ranks_on.begin(), ranks_on.end(),
                       [&](const auto& list) { return list.size() == ranks_on[0].size(); });
  }
  /// The ranks of a host, ascending.
  const std::vector<int>& peers_inside(int rank) const {
    return ranks_on[static_cast<size_t>(host_of[static_cast<size_t>(rank)])];
  }
  /// The ranks with this rank's local index, host by host. If hosts are uneven, only leaders (index
  /// 0) have one on every host.
  std::vector<int> peers_across(int rank) const {
    const auto index = static_cast<size_t>(local_index[static_cast<size_t>(rank)]);
    std::vector<int> peers;
    for (const auto& list : ranks_on)
      if (index < list.size()) peers.push_back(list[index]);
    return peers;
  }
  int host(int rank) const { return host_of[static_cast<size_t>(rank)]; }
  int index(int rank) const { return local_index[static_cast<size_t>(rank)]; }

  std::vector<int> host_of, local_index;
  std::vector<std::vector<int>> ranks_on;
};

/// How an all_reduce of `count` elements is divided among `local` ranks per host: whole segments,
/// each a multiple of `local` elements, then a tail of fewer than `local`.
struct SegmentPlan {
  int64_t segment = 0, segments = 0, tail = 0;
  int64_t begin(int64_t k) const { return k * segment; }
  int64_t size(int64_t k, int64_t whole) const { return std::min(segment, whole - begin(k)); }
};
inline SegmentPlan plan_segments(int64_t count, int local, int64_t most) {
  SegmentPlan p;
  p.tail = count % local;
  const int64_t whole = count - p.tail;
  p.segment = std::max<int64_t>(local, most / local * local);
  p.segments = whole ? (whole + p.segment - 1) / p.segment : 0;
  return p;
}

}  // namespace trireme::detail
