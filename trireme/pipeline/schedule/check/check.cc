// SPDX-License-Identifier: Apache-2.0
#include "trireme/pipeline/schedule/check.h"

#include <fmt/core.h>

#include <algorithm>

#include "trireme/pipeline/schedule/check/parts.h"

namespace trireme::pipeline {

const char* name_of(Fault fault) {
  switch (fault) {
    case Fault::empty_table: return "empty_table";
    case Fault::stage_without_rank: return "stage_without_rank";
    case Fault::stage_on_two_ranks: return "stage_on_two_ranks";
    case Fault::repeated_action: return "repeated_action";
    case Fault::two_backwards: return "two_backwards";
    case Fault::dependent_pair: return "dependent_pair";
    case Fault::missing_forward: return "missing_forward";
    case Fault::missing_backward: return "missing_backward";
    case Fault::missing_weight_gradient: return "missing_weight_gradient";
    case Fault::backward_before_forward: return "backward_before_forward";
    case Fault::weight_before_input: return "weight_before_input";
    case Fault::handed_over_late: return "handed_over_late";
    case Fault::needless_message: return "needless_message";
    case Fault::missing_receive: return "missing_receive";
    case Fault::missing_send: return "missing_send";
    case Fault::received_after_use: return "received_after_use";
    case Fault::sent_before_computed: return "sent_before_computed";
    case Fault::deadlock: return "deadlock";
    case Fault::rendezvous_deadlock: return "rendezvous_deadlock";
    case Fault::tag_clash: return "tag_clash";
    case Fault::too_many_activations: return "too_many_activations";
    case Fault::too_many_weight_gradients: return "too_many_weight_gradients";
    case Fault::unit_not_whole: return "unit_not_whole";
    case Fault::unit_gathered_twice: return "unit_gathered_twice";
    case Fault::unit_not_dropped: return "unit_not_dropped";
    case Fault::reduced_too_early: return "reduced_too_early";
    case Fault::reduced_not_once: return "reduced_not_once";
  }
  return "?";
}

namespace checking {

std::string where(const Schedule& schedule, Place place) {
  const auto& list = schedule.actions[static_cast<size_t>(place.rank)];
  return fmt::format("rank {}, action {} ({})", place.rank, place.position + 1,
                     text_of(list[static_cast<size_t>(place.position)]));
}

std::string draw_lists(const Schedule& schedule, const std::vector<Place>& marked) {
  constexpr int kAround = 4, kMostRows = 16;
  std::string out;
  int rows = 0;
  for (int rank = 0; rank < schedule.ranks(); ++rank) {
    const auto mark = std::find_if(marked.begin(), marked.end(),
                                   [&](const Place& p) { return p.rank == rank; });
    if (mark == marked.end() && schedule.ranks() > kMostRows) continue;
    if (++rows > kMostRows) return out + "  ...\n";
    const auto& list = schedule.actions[static_cast<size_t>(rank)];
    const int size = static_cast<int>(list.size());
    const int at = mark == marked.end() ? -1 : mark->position;
    const int first = std::max(0, at - kAround), end = std::min(size, std::max(at, 0) + kAround + 1);
    out += fmt::format("  rank {:<3}{}", rank, first > 0 ? " ..." : "");
    for (int i = first; i < end; ++i) {
      const std::string text = text_of(list[static_cast<size_t>(i)]);
      out += i == at ? " [" + text + "]" : " " + text;
    }
    out += end < size ? " ...\n" : "\n";
  }
  return out;
}

Finding finding(const Schedule& schedule, Fault fault, Place place, const std::string& sentence) {
  std::vector<Place> marked;
  if (place.there()) marked.push_back(place);
  return {fault, place.rank, place.position, sentence, draw_lists(schedule, marked)};
}

}  // namespace checking

std::optional<Finding> check_schedule(const Schedule& schedule, const CheckOptions& options) {
  using namespace checking;
  if (schedule.ranks() == 0 || schedule.stages() == 0 || schedule.micro_batches == 0)
    return Finding{Fault::empty_table, -1, -1, "the table computes nothing: give each rank a row",
                   ""};
  Index index(schedule);
  if (Result r = fill(schedule, index)) return r;
  if (Result r = check_complete(schedule, index)) return r;
  if (Result r = check_order(schedule, index)) return r;
  if (Result r = check_messages(schedule, index)) return r;
  if (Result r = check_execution(schedule, index, options)) return r;
  if (Result r = check_memory(schedule, options)) return r;
  return check_units(schedule);
}

}  // namespace trireme::pipeline
