// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "trireme/pipeline/schedule/generators/lists.h"

// Interleaved 1F1B (Narayanan et al. 2021, Megatron-LM): v stages a rank in a loop. Micro-batches
// pass in rounds of about p: a rank computes a round with its first stage, then with its second, and
// so on. As in torch.distributed.pipelining (and Llama 3's report), a round may have more than p.
namespace trireme::pipeline {
namespace {

struct Place {
  int stage, micro_batch;
};

}  // namespace

Schedule interleaved(const ScheduleSize& size) {
  const int p = size.ranks, m = size.micro_batches, v = size.stages_per_rank;
  check<UsageError>(v >= 2, "interleaved_1f1b needs two or more stages on each rank: choose -v 2, or 1f1b");
  const int rounds = std::max(1, m / p), round = m / rounds;
  check<UsageError>(m % rounds == 0,
                    "interleaved_1f1b passes {} micro-batches through {} ranks in {} equal rounds, "
                    "which they do not divide into: choose {} or {} micro-batches",
                    m, p, rounds, m / p * p, (m / p + 1) * p);
  Schedule schedule{"interleaved_1f1b", m, looped_placement(p, v), {}};
  for (int rank = 0; rank < p; ++rank) {
    const auto place = [&](int step, bool backward) {
      const int chunk = step / round % v;
      return Place{(backward ? v - 1 - chunk : chunk) * p + rank,
                   step / (round * v) * round + step % round};
    };
    const int steps = m * v;
    const int ahead = std::min((v - 1) * round + 2 * (p - 1 - rank), steps);
    ActionList list;
    const auto forward = [&](int step) {
      const Place at = place(step, false);
      list.f(at.stage, at.micro_batch);
    };
    for (int k = 0; k < ahead; ++k) forward(k);
    for (int k = 0; k < steps; ++k) {
      if (k + ahead < steps) forward(k + ahead);
      const Place at = place(k, true);
      list.b(at.stage, at.micro_batch);
    }
    schedule.actions.push_back(std::move(list.actions));
  }
  return schedule;
}

}  // namespace trireme::pipeline
