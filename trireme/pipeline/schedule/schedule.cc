// SPDX-License-Identifier: Apache-2.0
#include "trireme/pipeline/schedule/schedule.h"

#include <algorithm>

namespace trireme::pipeline {
namespace {

template <class Test>
bool any_action(const Schedule& schedule, Test test) {
  return std::any_of(schedule.actions.begin(), schedule.actions.end(), [&](const auto& list) {
    return std::any_of(list.begin(), list.end(), [&](const Action& a) { return test(a.kind); });
  });
}

}  // namespace

int Schedule::source_of(const Action& a) const {
  switch (a.kind) {
    case ActionKind::forward:
    case ActionKind::recv_forward:
      return a.stage - 1;
    case ActionKind::input_gradient:
    case ActionKind::backward:
    case ActionKind::recv_backward:
      return a.stage + 1 < stages() ? a.stage + 1 : -1;
    default:
      return -1;
  }
}

bool Schedule::has_messages() const { return any_action(*this, is_message); }
bool Schedule::has_units() const { return any_action(*this, is_of_unit); }
bool Schedule::has_gathers() const { return any_action(*this, is_gather_or_drop); }
bool Schedule::has_reductions() const {
  for (const auto& list : actions)
    for (const Action& a : list)
      if (a.kind == ActionKind::reduce_gradients && a.micro_batch != Action::kNone) return true;
  return false;
}

std::vector<int> looped_placement(int ranks, int stages_per_rank) {
  std::vector<int> rank_of_stage;
  for (int i = 0; i < ranks * stages_per_rank; ++i) rank_of_stage.push_back(i % ranks);
  return rank_of_stage;
}

std::vector<int> v_placement(int ranks) {
  std::vector<int> rank_of_stage;
  for (int i = 0; i < ranks; ++i) rank_of_stage.push_back(i);
  for (int i = ranks - 1; i >= 0; --i) rank_of_stage.push_back(i);
  return rank_of_stage;
}

Schedule schedule_of_rows(std::string name, std::vector<std::vector<Action>> rows) {
  Schedule schedule{std::move(name), 0, {}, std::move(rows)};
  for (int r = 0; r < schedule.ranks(); ++r)
    for (const Action& a : schedule.actions[static_cast<size_t>(r)]) {
      schedule.micro_batches = std::max(schedule.micro_batches, a.micro_batch + 1);
      const auto stage = static_cast<size_t>(a.stage);
      if (stage >= schedule.rank_of_stage.size()) schedule.rank_of_stage.resize(stage + 1, -1);
      int& rank = schedule.rank_of_stage[stage];
      if (rank < 0 && is_compute(a.kind)) rank = r;
    }
  return schedule;
}

Schedule only_compute(Schedule schedule) {
  for (auto& list : schedule.actions)
    std::erase_if(list, [](const Action& a) { return !is_compute(a.kind); });
  return schedule;
}

}  // namespace trireme::pipeline
