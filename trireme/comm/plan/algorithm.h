// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <optional>
#include <string_view>
#include <vector>

#include "trireme/base/check.h"
#include "trireme/base/export.h"
#include "trireme/comm/plan/plan.h"

// The algorithms of all_reduce. comm/wrappers/tuned_backend.h decides which one a group uses.
namespace trireme {

/// direct, halving_doubling, tree and (on well-ordered hosts) two_level add in the group's order
/// and give the same bits as its all_reduce; ring and double_tree add in orders of their own.
enum class Algorithm : uint8_t { direct, ring, halving_doubling, tree, double_tree, two_level };

inline constexpr Algorithm kAlgorithms[] = {Algorithm::direct,           Algorithm::ring,
                                            Algorithm::halving_doubling, Algorithm::tree,
                                            Algorithm::double_tree,      Algorithm::two_level};

TRIREME_API const char* name_of(Algorithm algorithm);  // "halving_doubling"
TRIREME_API std::optional<Algorithm> algorithm_named(std::string_view name);

/// Whether the algorithm gives the same bits as the group's all_reduce. hosts[r] is the host of
/// rank r; empty: all ranks on one host.
TRIREME_API bool keeps_order(Algorithm algorithm, const std::vector<int>& hosts);

/// Makes the plan of `rank` for an all_reduce of `count` elements over n ranks. Throws UsageError
/// if hosts has neither 0 nor n entries, or rank is not in the group.
TRIREME_API plan::Plan make_plan(Algorithm algorithm, int rank, int n, size_t count,
                                 const std::vector<int>& hosts = {});

}  // namespace trireme
