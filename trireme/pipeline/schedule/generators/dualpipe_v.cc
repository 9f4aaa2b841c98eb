// SPDX-License-Identifier: Apache-2.0
#include <deque>

#include "trireme/pipeline/schedule/generators/lists.h"

// DualPipeV (DeepSeek-V3; ScheduleDualPipeV of torch.distributed.pipelining): the V of ZB-V, whose
// steady state pairs the forward of one stage with the backward of the other, so that the messages
// of one may pass while the other computes. Some backwards at the end are in two halves.
namespace trireme::pipeline {
namespace {

class RankOfPairs {
 public:
  RankOfPairs(int down, int up) : stage_{down, up} {}

  void f(int which) { list_.f(stage_[which], forwards_[which]++); }
  void b(int which, bool halves) {
    const int micro_batch = backwards_[which]++;
    if (!halves) return list_.b(stage_[which], micro_batch);
    list_.i(stage_[which], micro_batch);
    waiting_.push_back({ActionKind::weight_gradient, stage_[which], micro_batch});
  }
  void pair(int forward, int backward) {
    f(forward);
    list_.actions.back().overlaps_next = true;
    b(backward, false);
  }
  void w() {
    if (waiting_.empty()) return;
    list_.actions.push_back(waiting_.front());
    waiting_.pop_front();
  }
  std::vector<Action> take() { return std::move(list_.actions); }

 private:
  int stage_[2], forwards_[2] = {0, 0}, backwards_[2] = {0, 0};
  std::deque<Action> waiting_;  // weight gradients, oldest first
  ActionList list_;
};

constexpr int kDownward = 0, kUpward = 1;

}  // namespace

Schedule dualpipe_v(const ScheduleSize& size) {
  check_two_stages_a_rank("dualpipe_v", size);
  const int p = size.ranks, m = size.micro_batches;
  check<UsageError>(m >= 2 * p,
                    "dualpipe_v needs as many micro-batches as stages, {}, and has {}: choose at "
                    "least {} micro-batches, or zb_v",
                    2 * p, m, 2 * p);
  Schedule schedule{"dualpipe_v", m, v_placement(p), {}};
  for (int rank = 0; rank < p; ++rank) {
    const int behind = p - 1 - rank;
    RankOfPairs at(rank, 2 * p - 1 - rank);
    for (int k = 0; k < 2 * behind; ++k) at.f(kDownward);
    for (int k = 0; k <= rank; ++k) at.f(kDownward), at.f(kUpward);
    for (int k = 0; k < behind; ++k) at.b(kUpward, true), at.w(), at.f(kUpward);
    for (int k = 0; k < m - 2 * p + rank + 1; ++k) {
      if (k == 0 && behind == 0)  // the last rank's first pair is in turn: its backward is awaited
        at.f(kDownward), at.b(kUpward, false);
      else
        at.pair(kDownward, kUpward);
      at.pair(kUpward, kDownward);
    }
    for (int k = 0; k < behind; ++k) at.b(kUpward, false), at.pair(kUpward, kDownward);
    bool halves = false;
    for (int k = 0; k <= rank; ++k) {
      const bool middle = k == (rank + 1) / 2;
      halves = halves || (middle && rank % 2 == 1);
      at.b(kUpward, halves);
      halves = halves || (middle && rank % 2 == 0);
      at.b(kDownward, halves);
    }
    for (int k = 0; k < behind; ++k) at.w(), at.b(kDownward, halves);
    for (int k = 0; k <= rank; ++k) at.w();
    schedule.actions.push_back(at.take());
  }
  return schedule;
}

}  // namespace trireme::pipeline
