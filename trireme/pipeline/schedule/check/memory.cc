// SPDX-License-Identifier: Apache-2.0
#include <fmt/core.h>

#include <map>

#include "trireme/pipeline/schedule/check/parts.h"

// What a rank keeps between its actions, which its own list decides.
namespace trireme::pipeline::checking {

Result check_memory(const Schedule& schedule, const CheckOptions& options) {
  for (int rank = 0; rank < schedule.ranks(); ++rank) {
    const auto& list = schedule.actions[static_cast<size_t>(rank)];
    int activations = 0, weights = 0;
    for (size_t i = 0; i < list.size(); ++i) {
      const Place here{rank, static_cast<int>(i)};
      switch (list[i].kind) {
        case ActionKind::forward: ++activations; break;
        case ActionKind::backward: --activations; break;
        case ActionKind::input_gradient: --activations, ++weights; break;
        case ActionKind::weight_gradient: --weights; break;
        default: break;
      }
      if (options.most_activations > 0 && activations > options.most_activations)
        return finding(schedule, Fault::too_many_activations, here,
                       fmt::format("{} makes {} live activations on its rank, and {} are allowed",
                                   where(schedule, here), activations, options.most_activations));
      if (options.most_weight_gradients > 0 && weights > options.most_weight_gradients)
        return finding(schedule, Fault::too_many_weight_gradients, here,
                       fmt::format("{} makes {} weight gradients wait on its rank, and {} are "
                                   "allowed to",
                                   where(schedule, here), weights, options.most_weight_gradients));
    }
  }
  return {};
}

Result check_units(const Schedule& schedule) {
  if (!schedule.has_units()) return {};
  for (int rank = 0; rank < schedule.ranks(); ++rank) {
    const auto& list = schedule.actions[static_cast<size_t>(rank)];
    struct Unit {
      bool whole = false;
      int weights = 0, reductions = 0;
      Place gathered, last;
    };
    std::map<int, Unit> units;
    for (size_t i = 0; i < list.size(); ++i) {
      const Action& a = list[i];
      const Place here{rank, static_cast<int>(i)};
      Unit& unit = units[a.stage];
      const auto fault = [&](Fault f, const std::string& what) {
        return finding(schedule, f, here, where(schedule, here) + " " + what);
      };
      if (is_compute(a.kind) && !unit.whole)
        return fault(Fault::unit_not_whole, "computes while its stage's parameters are not gathered");
      if (is_compute(a.kind)) unit.last = here;
      if (gives_weight_gradient(a.kind)) ++unit.weights;
      if (a.kind == ActionKind::unshard) {
        if (unit.whole) return fault(Fault::unit_gathered_twice, "gathers what is gathered already");
        unit.whole = true, unit.gathered = here;
      } else if (a.kind == ActionKind::reshard) {
        if (!unit.whole) return fault(Fault::unit_not_dropped, "drops what is not gathered");
        unit.whole = false;
      } else if (a.kind == ActionKind::reduce_gradients) {
        if (unit.weights < schedule.micro_batches)
          return fault(Fault::reduced_too_early,
                       fmt::format("adds gradients of which {} of {} micro-batches are there",
                                   unit.weights, schedule.micro_batches));
        if (++unit.reductions > 1)
          return fault(Fault::reduced_not_once, "adds the gradients of its stage a second time");
      }
    }
    for (const auto& [stage, unit] : units) {
      if (unit.whole)
        return finding(schedule, Fault::unit_not_dropped, unit.gathered,
                       fmt::format("{} gathers a stage that is never dropped",
                                   where(schedule, unit.gathered)));
      if (unit.reductions == 0)
        return finding(schedule, Fault::reduced_not_once, unit.last,
                       fmt::format("after {} the gradients of stage {} are complete, and no "
                                   "REDUCE_GRAD follows",
                                   where(schedule, unit.last), stage));
    }
  }
  return {};
}

}  // namespace trireme::pipeline::checking
