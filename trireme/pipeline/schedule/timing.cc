// SPDX-License-Identifier: Apache-2.0
#include "trireme/pipeline/schedule/timing.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "trireme/base/check.h"
#include "trireme/pipeline/schedule/messages.h"

namespace trireme::pipeline {
namespace {

using K = ActionKind;

double time_of(K kind, const StageCost& c) {
  switch (kind) {
    case K::forward:
      return c.forward;
    case K::input_gradient:
      return c.input_gradient;
    case K::weight_gradient:
      return c.weight_gradient;
    case K::backward:
      return c.input_gradient + c.weight_gradient;
    default:
      return 0;
  }
}

class Simulation {
 public:
  Simulation(const Schedule& schedule, const Costs& costs)
      : schedule_(schedule),
        costs_(costs),
        at_(schedule.actions.size(), 0),
        clock_(schedule.actions.size(), 0) {
    timing_.ranks.resize(schedule.actions.size());
  }

  Timing run() {
    size_t left = 0;
    for (const auto& list : schedule_.actions) left += list.size();
    while (left > 0) {
      const size_t before = left;
      for (size_t rank = 0; rank < at_.size(); ++rank)
        while (at_[rank] < schedule_.actions[rank].size() &&
               act(rank, schedule_.actions[rank][at_[rank]]))
          ++at_[rank], --left;
      check<UsageError>(left < before, "'{}' cannot be carried out: its ranks wait for each other",
                        schedule_.name);
    }
    for (RankTiming& r : timing_.ranks)
      if (!r.spans.empty()) {
        r.start = r.spans.front().start, r.end = r.spans.back().end;
        timing_.makespan = std::max(timing_.makespan, r.end);
      }
    keep();
    return std::move(timing_);
  }

 private:
  // What an action needs from another stage: by direction, the stage that made it, and micro-batch.
  using Key = std::tuple<bool, int, int>;

  // False where what it needs is not there yet.
  bool act(size_t rank, const Action& a) {
    const bool forward = a.kind == K::forward || a.kind == K::send_forward;
    if (is_send(a.kind)) {
      sent_[{forward, a.stage, a.micro_batch}] = clock_[rank] + costs_.transfer;
      return true;
    }
    if (!is_compute(a.kind)) return true;
    double start = clock_[rank];
    if (const int source = schedule_.source_of(a); source >= 0) {
      const auto& times = schedule_.same_rank(source, a.stage) ? made_ : sent_;
      const auto from = times.find({forward, source, a.micro_batch});
      if (from == times.end()) return false;
      start = std::max(start, from->second);
    }
    const auto stage = static_cast<size_t>(a.stage);
    const double time = time_of(a.kind, costs_.stages[costs_.stages.size() == 1 ? 0 : stage]);
    clock_[rank] = start + time;
    timing_.ranks[rank].busy += time;
    timing_.ranks[rank].spans.push_back({a, start, clock_[rank]});
    if (a.kind != K::weight_gradient) made_[{forward, a.stage, a.micro_batch}] = clock_[rank];
    return true;
  }

  // Memory is decided by the order of a rank's list alone.
  void keep() {
    timing_.stages.resize(static_cast<size_t>(schedule_.stages()));
    for (size_t s = 0; s < timing_.stages.size(); ++s)
      timing_.stages[s].rank = schedule_.rank_of_stage[s];
    for (RankTiming& r : timing_.ranks) {
      std::map<int, Waiting> of_stage;
      Waiting of_rank;
      double clock = 0;
      for (const Span& s : r.spans) {
        StageTiming& stage = timing_.stages[static_cast<size_t>(s.action.stage)];
        stage.busy += s.end - s.start;
        stage.waited += s.start - clock;
        clock = s.end;
        of_stage[s.action.stage].count(s.action.kind, stage);
        of_rank.count(s.action.kind, r);
      }
    }
  }

  // Micro-batches that wait for a gradient.
  struct Waiting {
    int activations = 0, weights = 0;
    template <class Most>
    void count(K kind, Most& most) {
      if (kind == K::forward) ++activations;
      if (gives_input_gradient(kind)) --activations;
      if (kind == K::input_gradient) ++weights;
      if (kind == K::weight_gradient) --weights;
      most.activations = std::max(most.activations, activations);
      most.weight_gradients = std::max(most.weight_gradients, weights);
      most.kept = std::max(most.kept, activations + weights);
    }
  };

  const Schedule& schedule_;
  const Costs& costs_;
  std::vector<size_t> at_;
  std::vector<double> clock_;
  std::map<Key, double> made_, sent_;
  Timing timing_;
};

}  // namespace

double Timing::bubble() const {
  double busy = 0;
  for (const RankTiming& r : ranks) busy = std::max(busy, r.busy);
  return makespan > 0 ? 1 - busy / makespan : 0;
}

double Timing::span_bubble() const {
  double busy = 0, span = 0;
  for (const RankTiming& r : ranks) busy = std::max(busy, r.busy), span = std::max(span, r.span());
  return span > 0 ? 1 - busy / span : 0;
}

Timing simulate(const Schedule& schedule, const Costs& costs) {
  check_costs(schedule.stages(), costs);
  if (schedule.has_messages()) return Simulation(schedule, costs).run();
  const Schedule complete = place_messages(schedule);
  return Simulation(complete, costs).run();
}

}  // namespace trireme::pipeline
