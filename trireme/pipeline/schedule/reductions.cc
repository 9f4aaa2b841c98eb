// SPDX-License-Identifier: Apache-2.0
#include "trireme/pipeline/schedule/reductions.h"

#include <optional>

namespace trireme::pipeline {
namespace {

using List = std::vector<Action>;

List with_reductions(const List& list) {
  List out;
  std::optional<Action> due;
  const auto reduce = [&] {
    if (due) out.push_back(*due);
    due.reset();
  };
  for (size_t begin = 0; begin < list.size();) {
    // An overlapped pair stays together.
    size_t end = begin + 1;
    while (end < list.size() && list[end - 1].overlaps_next) ++end;
    for (size_t at = begin; at < end; ++at)
      if (gives_weight_gradient(list[at].kind)) reduce();
    for (size_t at = begin; at < end; ++at) {
      const Action& a = list[at];
      if (a.kind != ActionKind::reduce_gradients) out.push_back(a);
      if (gives_weight_gradient(a.kind))
        due = Action{ActionKind::reduce_gradients, a.stage, a.micro_batch};
    }
    begin = end;
  }
  reduce();
  return out;
}

}  // namespace

Schedule place_reductions(const Schedule& schedule) {
  if (schedule.has_reductions()) return schedule;
  Schedule out = schedule;
  for (List& list : out.actions) list = with_reductions(list);
  return out;
}

}  // namespace trireme::pipeline
