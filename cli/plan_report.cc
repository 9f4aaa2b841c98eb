// SPDX-License-Identifier: Apache-2.0
#include "cli/plan_report.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "trireme/pipeline/schedule/drawing.h"
#include "trireme/pipeline/schedule/generators.h"

namespace trireme {
namespace {

using pipeline::RankTiming;
using pipeline::Schedule;
using pipeline::Timing;

std::string percent(double share) {
  return fmt::format("{:.1f} %", 100 * (std::abs(share) < 5e-4 ? 0.0 : share));
}

double idle(double busy, double of) { return of > 0 ? 1 - busy / of : 0; }

// "0, 7": the stages of a rank.
std::string stages_of(const Schedule& schedule, int rank) {
  std::string text;
  for (int s = 0; s < schedule.stages(); ++s)
    if (schedule.rank_of_stage[static_cast<size_t>(s)] == rank)
      text += (text.empty() ? "" : ",") + std::to_string(s);
  return text;
}

}  // namespace

std::string schedule_figures(const Schedule& schedule, const Timing& timing) {
  double busiest = 0, longest = 0;
  for (const RankTiming& r : timing.ranks)
    busiest = std::max(busiest, r.busy), longest = std::max(longest, r.span());
  std::string out = fmt::format(
      "step    {:.6g}, of which the busiest rank computes {:.6g}: bubble {}\n"
      "rank    at most {:.6g} from its first action to its last: bubble {}\n"
      "memory  {}\n\n",
      timing.makespan, busiest, percent(timing.bubble()), longest, percent(timing.span_bubble()),
      pipeline::memory_text(timing));
  size_t width = 6;
  for (int r = 0; r < schedule.ranks(); ++r) width = std::max(width, stages_of(schedule, r).size());
  out += fmt::format("{:>4}  {:<{}}{:>10}{:>10}{:>10}{:>9}{:>9}{:>9}{:>6}\n", "rank", "stages",
                     width + 1, "start", "end", "computes", "bubble", "inputs", "W wait", "kept");
  for (int r = 0; r < schedule.ranks(); ++r) {
    const RankTiming& rank = timing.ranks[static_cast<size_t>(r)];
    out += fmt::format("{:>4}  {:<{}}{:>10.6g}{:>10.6g}{:>10.6g}{:>9}{:>9}{:>9}{:>6}\n", r,
                       stages_of(schedule, r), width + 1, rank.start, rank.end, rank.busy,
                       percent(idle(rank.busy, timing.makespan)), rank.activations,
                       rank.weight_gradients, rank.kept);
  }
  if (schedule.stages() == schedule.ranks()) return out;
  out += fmt::format("\n{:>5}{:>7}{:>10}{:>9}{:>9}{:>9}{:>9}{:>6}\n", "stage", "rank", "computes",
                     "of step", "bubble", "inputs", "W wait", "kept");
  for (size_t s = 0; s < timing.stages.size(); ++s) {
    const pipeline::StageTiming& stage = timing.stages[s];
    const double step = timing.makespan > 0 ? timing.makespan : 1;
    out += fmt::format("{:>5}{:>7}{:>10.6g}{:>9}{:>9}{:>9}{:>9}{:>6}\n", s, stage.rank, stage.busy,
                       percent(stage.busy / step), percent(stage.waited / step), stage.activations,
                       stage.weight_gradients, stage.kept);
  }
  return out;
}

nlohmann::ordered_json schedule_json(const Schedule& schedule, const Timing& timing) {
  using nlohmann::ordered_json;
  ordered_json out{{"name", schedule.name},
                   {"ranks", schedule.ranks()},
                   {"stages", schedule.stages()},
                   {"micro_batches", schedule.micro_batches},
                   {"step", timing.makespan},
                   {"bubble", timing.bubble()},
                   {"span_bubble", timing.span_bubble()}};
  out["of_rank"] = ordered_json::array();
  for (int r = 0; r < schedule.ranks(); ++r) {
    const RankTiming& rank = timing.ranks[static_cast<size_t>(r)];
    ordered_json actions = ordered_json::array();
    for (const pipeline::Span& s : rank.spans)
      actions.push_back({{"action", text_of(s.action)}, {"start", s.start}, {"end", s.end}});
    out["of_rank"].push_back({{"rank", r},
                              {"start", rank.start},
                              {"end", rank.end},
                              {"computes", rank.busy},
                              {"bubble", idle(rank.busy, timing.makespan)},
                              {"inputs", rank.activations},
                              {"weight_gradients_waiting", rank.weight_gradients},
                              {"kept", rank.kept},
                              {"actions", actions}});
  }
  out["of_stage"] = ordered_json::array();
  for (size_t s = 0; s < timing.stages.size(); ++s) {
    const pipeline::StageTiming& stage = timing.stages[s];
    out["of_stage"].push_back({{"stage", s},
                               {"rank", stage.rank},
                               {"computes", stage.busy},
                               {"bubble", timing.makespan > 0 ? stage.waited / timing.makespan : 0},
                               {"inputs", stage.activations},
                               {"weight_gradients_waiting", stage.weight_gradients},
                               {"kept", stage.kept}});
  }
  return out;
}

std::string schedule_list() {
  std::string out =
      fmt::format("{:<18}{:<20}{:<8}{}\n", "name", "bubble", "kept", "conditions; source");
  for (const pipeline::ScheduleKind& k : pipeline::schedule_kinds())
    out += fmt::format("{:<18}{:<20}{:<8}{}; {}\n", k.name, k.bubble, k.memory, k.conditions,
                       k.source);
  return out;
}

}  // namespace trireme
