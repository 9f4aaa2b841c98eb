// SPDX-License-Identifier: Apache-2.0
#include <fmt/core.h>

#include <map>
#include <optional>

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
        case ActionKind::forward:
          ++activations;
          break;
        case ActionKind::backward:
          --activations;
          break;
        case ActionKind::input_gradient:
          --activations, ++weights;
          break;
        case ActionKind::weight_gradient:
          --weights;
          break;
        default:
          break;
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
  const bool gathers = schedule.has_gathers(), each = schedule.has_reductions();
  for (int rank = 0; rank < schedule.ranks(); ++rank) {
    const auto& list = schedule.actions[static_cast<size_t>(rank)];
    struct Unit {
      bool whole = false;
      int weights = 0, reductions = 0;
      Place gathered, last;
    };
    std::map<int, Unit> units;
    // The backward whose gradients are not added yet, where each is added by itself.
    std::optional<Place> open;
    for (size_t i = 0; i < list.size(); ++i) {
      const Action& a = list[i];
      const Place here{rank, static_cast<int>(i)};
      Unit& unit = units[a.stage];
      const auto fault = [&](Fault f, const std::string& what) {
        return finding(schedule, f, here, where(schedule, here) + " " + what);
      };
      if (is_compute(a.kind) && gathers && !unit.whole)
        return fault(Fault::unit_not_whole,
                     "computes while its stage's parameters are not gathered");
      if (is_compute(a.kind)) unit.last = here;
      if (gives_weight_gradient(a.kind)) ++unit.weights;
      if (each && gives_weight_gradient(a.kind)) {
        if (open)
          return fault(Fault::reduced_not_once,
                       fmt::format("comes before the gradients of {} are added, and those of two "
                                   "backwards do not meet",
                                   where(schedule, *open)));
        open = here;
      }
      if (a.kind == ActionKind::unshard) {
        if (unit.whole)
          return fault(Fault::unit_gathered_twice, "gathers what is gathered already");
        unit.whole = true, unit.gathered = here;
      } else if (a.kind == ActionKind::reshard) {
        if (!unit.whole) return fault(Fault::unit_not_dropped, "drops what is not gathered");
        unit.whole = false;
      } else if (a.kind == ActionKind::reduce_gradients && each) {
        const Action* of = open ? &list[static_cast<size_t>(open->position)] : nullptr;
        if (!of || of->stage != a.stage || of->micro_batch != a.micro_batch)
          return fault(
              a.micro_batch == Action::kNone ? Fault::reduced_not_once : Fault::reduced_too_early,
              a.micro_batch == Action::kNone
                  ? "adds the gradients of the step, and those of each micro-batch are "
                    "added by themselves"
                  : "adds gradients that are not there, or were added before: it follows "
                    "the B or W of its stage and micro-batch");
        open.reset();
        ++unit.reductions;
      } else if (a.kind == ActionKind::reduce_gradients) {
        if (unit.weights < schedule.micro_batches)
          return fault(Fault::reduced_too_early,
                       fmt::format("adds gradients of which {} of {} micro-batches are there",
                                   unit.weights, schedule.micro_batches));
        if (++unit.reductions > 1)
          return fault(Fault::reduced_not_once, "adds the gradients of its stage a second time");
      }
    }
    if (open)
      return finding(
          schedule, Fault::reduced_not_once, *open,
          fmt::format("no REDUCE_GRAD adds the gradients of {}", where(schedule, *open)));
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
