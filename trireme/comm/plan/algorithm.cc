// SPDX-License-Identifier: Apache-2.0
#include "trireme/comm/plan/algorithm.h"

#include "trireme/comm/plan/direct_plan.h"
#include "trireme/comm/plan/halving_doubling_plan.h"
#include "trireme/comm/plan/ring_plan.h"
#include "trireme/comm/plan/tree_plan.h"
#include "trireme/comm/plan/tuning.h"
#include "trireme/comm/plan/two_level_plan.h"

namespace trireme {
namespace {

constexpr size_t kTreeBytes = size_t{4} << 10;     // below: latency decides
constexpr size_t kHalvingBytes = size_t{1} << 20;  // above: neighbours in a ring share links best

}  // namespace

const char* name_of(Algorithm algorithm) {
  switch (algorithm) {
    case Algorithm::direct:
      return "direct";
    case Algorithm::ring:
      return "ring";
    case Algorithm::halving_doubling:
      return "halving_doubling";
    case Algorithm::tree:
      return "tree";
    case Algorithm::double_tree:
      return "double_tree";
    case Algorithm::two_level:
      return "two_level";
  }
  return "?";
}

std::optional<Algorithm> algorithm_named(std::string_view name) {
  for (Algorithm a : kAlgorithms)
    if (name == name_of(a)) return a;
  return std::nullopt;
}

bool keeps_order(Algorithm algorithm, const std::vector<int>& hosts) {
  switch (algorithm) {
    case Algorithm::direct:
    case Algorithm::halving_doubling:
    case Algorithm::tree:
      return true;
    case Algorithm::two_level:
      return plan::two_level_keeps_order(hosts);
    case Algorithm::ring:
    case Algorithm::double_tree:
      return false;
  }
  return false;
}

plan::Plan make_plan(Algorithm algorithm, int rank, int n, size_t count,
                     const std::vector<int>& hosts) {
  check<UsageError>(n >= 1 && rank >= 0 && rank < n, "rank {} is not in a group of {}", rank, n);
  check<UsageError>(hosts.empty() || hosts.size() == static_cast<size_t>(n),
                    "hosts of {} ranks for a group of {}", hosts.size(), n);
  switch (algorithm) {
    case Algorithm::direct:
      return plan::direct_plan(rank, n, count);
    case Algorithm::ring:
      return plan::ring_plan(rank, n, count);
    case Algorithm::halving_doubling:
      return plan::halving_doubling_plan(rank, n, count);
    case Algorithm::tree:
      return plan::tree_plan(rank, n, count);
    case Algorithm::double_tree:
      return plan::double_tree_plan(rank, n, count);
    case Algorithm::two_level:
      return plan::two_level_plan(
          rank, hosts.empty() ? std::vector<int>(static_cast<size_t>(n), 0) : hosts, count);
  }
  fail<UsageError>("no algorithm {}", static_cast<int>(algorithm));
}

Algorithm choose_algorithm(const AlgorithmQuery& query, const TuningTable* table) {
  if (query.op != "all_reduce" || query.ranks <= 1) return Algorithm::direct;
  auto allowed = [&](Algorithm a) { return !query.deterministic || keeps_order(a, query.hosts); };
  if (table)
    if (const auto measured = table->choose(query.op, query.ranks, query.bytes, allowed))
      return *measured;
  const auto by_host = plan::ranks_by_host(query.hosts);
  if (by_host.size() <= 1) return Algorithm::direct;
  if (query.bytes <= kTreeBytes) return Algorithm::tree;
  bool several_each = true;
  for (const auto& ranks : by_host) several_each = several_each && ranks.size() > 1;
  if (several_each && allowed(Algorithm::two_level)) return Algorithm::two_level;
  if (query.bytes > kHalvingBytes && allowed(Algorithm::ring)) return Algorithm::ring;
  return Algorithm::halving_doubling;
}

}  // namespace trireme
