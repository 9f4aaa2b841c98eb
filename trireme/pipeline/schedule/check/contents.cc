// SPDX-License-Identifier: Apache-2.0
#include <fmt/core.h>

#include <algorithm>

#include "trireme/pipeline/schedule/check/parts.h"

// What is in a table: each action once, on one rank, and none missing.
namespace trireme::pipeline::checking {

using K = ActionKind;

namespace {

// Both actions of a pair are free to run at once only if neither needs the other: of one stage they
// are of different micro-batches, and of neighbouring stages no message passes between them.
bool dependent(const Action& a, const Action& b) {
  return a.micro_batch == b.micro_batch && a.stage == b.stage;
}

}  // namespace

Result fill(const Schedule& schedule, Index& index) {
  for (int rank = 0; rank < schedule.ranks(); ++rank) {
    const auto& list = schedule.actions[static_cast<size_t>(rank)];
    for (size_t i = 0; i < list.size(); ++i) {
      const Action& a = list[i];
      const Place here{rank, static_cast<int>(i)};
      const int owner = schedule.rank_of_stage[static_cast<size_t>(a.stage)];
      if (owner < 0)
        return finding(schedule, Fault::stage_without_rank, here,
                       fmt::format("{} is of stage {}, which no rank computes",
                                   where(schedule, here), a.stage));
      if (owner != rank)
        return finding(schedule, Fault::stage_on_two_ranks, here,
                       fmt::format("{} is of stage {}, which is on rank {}", where(schedule, here),
                                   a.stage, owner));
      if (is_of_unit(a.kind)) continue;
      Place& place = index.at(a.kind, a.stage, a.micro_batch);
      if (place.there())
        return finding(schedule, Fault::repeated_action, here,
                       fmt::format("{} is there already as action {}", where(schedule, here),
                                   place.position + 1));
      place = here;
      if (a.overlaps_next && (i + 1 == list.size() || dependent(a, list[i + 1])))
        return finding(schedule, Fault::dependent_pair, here,
                       fmt::format("{} overlaps an action that waits for it: only different "
                                   "micro-batches may overlap",
                                   where(schedule, here)));
    }
  }
  return {};
}

Result check_complete(const Schedule& schedule, const Index& index) {
  const auto missing = [&](Fault fault, int stage, int k, const char* what) {
    const int rank = schedule.rank_of_stage[static_cast<size_t>(stage)];
    return finding(schedule, fault, {},
                   fmt::format("{} of stage {}, micro-batch {} is in no list: rank {} has it to "
                               "compute",
                               what, stage, k, rank));
  };
  for (int stage = 0; stage < schedule.stages(); ++stage) {
    if (schedule.rank_of_stage[static_cast<size_t>(stage)] < 0)
      return finding(schedule, Fault::stage_without_rank, {},
                     fmt::format("no rank computes stage {}, and there are {} stages", stage,
                                 schedule.stages()));
    for (int k = 0; k < schedule.micro_batches; ++k) {
      if (!index.at(K::forward, stage, k).there())
        return missing(Fault::missing_forward, stage, k, "the forward");
      const Place full = index.at(K::backward, stage, k);
      const Place input = index.at(K::input_gradient, stage, k);
      const Place weight = index.at(K::weight_gradient, stage, k);
      if (full.there() && (input.there() || weight.there())) {
        const Place half = input.there() ? input : weight;
        return finding(schedule, Fault::two_backwards, half,
                       fmt::format("{} computes a half of what action {} computes whole: B is both "
                                   "I and W",
                                   where(schedule, half), full.position + 1));
      }
      if (full.there()) continue;
      if (!input.there()) return missing(Fault::missing_backward, stage, k, "the backward (B or I)");
      if (!weight.there())
        return missing(Fault::missing_weight_gradient, stage, k, "the weight gradient (W)");
    }
  }
  return {};
}

}  // namespace trireme::pipeline::checking
