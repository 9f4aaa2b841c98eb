// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "trireme/pipeline/schedule/generators/lists.h"

// ZB-V (Qi et al. 2023, section 6; ScheduleZBVZeroBubble of torch.distributed.pipelining): a rank
// has one stage on the way down and one on the way up, so that the last stage is on rank 0 and all
// ranks keep as much. No rank is idle within the step where F = I = W.
namespace trireme::pipeline {
namespace {

// Counts up what comes next in each of the two stages of a rank.
class RankOfV {
 public:
  RankOfV(int down, int up) : stage_{down, up} {}
  void f(int which) { list_.f(stage_[which], forwards_[which]++); }
  void i(int which) { list_.i(stage_[which], inputs_[which]++); }
  void w(int which) { list_.w(stage_[which], weights_[which]++); }
  void iw(int which) { i(which), w(which); }
  int forwards(int which) const { return forwards_[which]; }
  bool owes_weight(int which) const { return weights_[which] < inputs_[which]; }
  std::vector<Action> take() { return std::move(list_.actions); }

 private:
  int stage_[2], forwards_[2] = {0, 0}, inputs_[2] = {0, 0}, weights_[2] = {0, 0};
  ActionList list_;
};

constexpr int kDown = 0, kUp = 1;

}  // namespace

Schedule zb_v(const ScheduleSize& size) {
  check_two_stages_a_rank("zb_v", size);
  const int p = size.ranks;
  // The pattern fills the pipeline with 2p−1 micro-batches; of those, what is not there is left out.
  const int m = std::max(size.micro_batches, 2 * p - 1);
  Schedule schedule{"zb_v", size.micro_batches, v_placement(p), {}};
  for (int rank = 0; rank < p; ++rank) {
    RankOfV at(rank, 2 * p - 1 - rank);
    for (int k = 0; k < 2 * (p - rank) - 1; ++k) at.f(kDown);
    for (int k = 0; k < rank; ++k) at.f(kUp), at.f(kDown);
    for (int k = 0; k < p - rank; ++k) at.f(kUp), at.iw(kUp);
    while (at.forwards(kUp) < m) {
      if (at.forwards(kDown) < m) at.f(kDown);
      at.iw(kDown), at.f(kUp), at.iw(kUp);
    }
    for (int k = 0; k < rank; ++k) at.i(kDown), at.i(kUp);
    for (int k = 0; k < p - rank; ++k) at.iw(kDown);
    while (at.owes_weight(kUp)) at.w(kUp);
    while (at.owes_weight(kDown)) at.w(kDown);
    std::vector<Action> list = at.take();
    std::erase_if(list, [&](const Action& a) { return a.micro_batch >= size.micro_batches; });
    schedule.actions.push_back(std::move(list));
  }
  return schedule;
}

}  // namespace trireme::pipeline
