// SPDX-License-Identifier: Apache-2.0
#include "trireme/comm/plan/algorithm.h"

#include "trireme/comm/plan/direct_plan.h"
#include "trireme/comm/plan/halving_doubling_plan.h"
#include "trireme/comm/plan/ring_plan.h"
#include "trireme/comm/plan/tree_plan.h"
#include "trireme/comm/plan/two_level_plan.h"

namespace trireme {

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
                    "hosts has {} entries for a group of {} ranks", hosts.size(), n);
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

}  // namespace trireme
