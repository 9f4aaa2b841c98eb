// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>

#include "trireme/comm/plan/direct_plan.h"
#include "trireme/comm/plan/halving_doubling_plan.h"

namespace trireme::plan {

/// Groups ranks by host, in the order of each host's first rank; hosts[r] is any number that
/// identifies the host of rank r.
inline std::vector<std::vector<int>> ranks_by_host(const std::vector<int>& hosts) {
  std::vector<std::vector<int>> ranks;
  std::map<int, size_t> place;
  for (size_t r = 0; r < hosts.size(); ++r) {
    const auto [at, is_new] = place.emplace(hosts[r], ranks.size());
    if (is_new) ranks.emplace_back();
    ranks[at->second].push_back(static_cast<int>(r));
  }
  return ranks;
}

/// Two levels: reduce-scatter inside each host (direct), all-reduce across hosts between equal
/// local ranks (halving and doubling), all-gather inside. With k ranks on the smallest host, k
/// parts cross the network at once, each 2(H−1)/H · count/k per rank for H hosts.
inline Plan two_level_plan(int rank, const std::vector<int>& hosts, size_t count) {
  Builder b;
  const auto by_host = ranks_by_host(hosts);
  size_t owners = hosts.size();
  for (const auto& ranks : by_host) owners = std::min(owners, ranks.size());
  const int across = halving::reduce_rounds(static_cast<int>(by_host.size()));
  const Range whole{0, count};
  for (const auto& ranks : by_host) {
    const Party inside = Party::of(ranks, rank);
    if (inside.me < 0) continue;
    direct_reduce_scatter(b, inside, static_cast<int>(owners), whole, 0);
    direct_all_gather(b, inside, static_cast<int>(owners), whole, 1 + 2 * across);
  }
  for (size_t j = 0; j < owners; ++j) {
    std::vector<int> equals;
    for (const auto& ranks : by_host) equals.push_back(ranks[j]);
    const Party party = Party::of(std::move(equals), rank);
    if (party.me < 0) continue;
    const Range part = part_of(whole, owners, j);
    halving::reduce_scatter(b, party, 0, party.size(), part, 1);
    halving::all_gather(b, party, 0, party.size(), part, 1 + across);
  }
  return b.take(2 + 2 * across);
}

/// Whether two_level_plan adds in the group's order: hosts hold blocks of neighbouring ranks, all
/// but the last of the same power of two, and the last of no more.
inline bool two_level_keeps_order(const std::vector<int>& hosts) {
  const auto by_host = ranks_by_host(hosts);
  if (by_host.size() <= 1) return true;
  const size_t block = by_host[0].size();
  if (block & (block - 1)) return false;
  for (size_t h = 0; h < by_host.size(); ++h) {
    const auto& ranks = by_host[h];
    if (h + 1 < by_host.size() ? ranks.size() != block : ranks.size() > block) return false;
    for (size_t i = 0; i < ranks.size(); ++i)
      if (ranks[i] != static_cast<int>(h * block + i)) return false;
  }
  return true;
}

}  // namespace trireme::plan
