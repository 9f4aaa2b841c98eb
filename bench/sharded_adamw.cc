// SPDX-License-Identifier: Apache-2.0
// What ZeRO-1 saves in the optimizer: AdamW on 100 M float32 parameters, every rank updating all of
// them at once as DDP does, against each rank updating its shard of the same plan. Ranks are
// threads with one intra-op thread each; a round is timed between barriers, so the slowest rank
// counts. Rounds alternate; median of the ratios. Void at a foreign load above 5 %.
//   cmake --build build/release --target sharded_adamw
//   build/release/bench/sharded_adamw [RANKS [ROUNDS]]
#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <torch/types.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "bench/foreign_load.h"
#include "trireme/base/clock.h"
#include "trireme/comm/start/run.h"
#include "trireme/optim/optimizer.h"
#include "trireme/shard/shard_plan.h"

using namespace trireme;

namespace {

constexpr int64_t kElements = 100'000'000, kTensors = 25;  // of 4 M each

NamedTensors make(const std::vector<int64_t>& numels) {
  NamedTensors list;
  for (size_t i = 0; i < numels.size(); ++i) {
    at::Tensor p = at::full({numels[i]}, 0.5f).requires_grad_(true);
    p.mutable_grad() = at::full({numels[i]}, 1e-3f);
    list.emplace_back(fmt::format("p{}", i), p);
  }
  return list;
}

double median(std::vector<double> x) {
  std::nth_element(x.begin(), x.begin() + static_cast<long>(x.size() / 2), x.end());
  return x[x.size() / 2];
}

}  // namespace

int main(int argc, char** argv) {
  const int ranks = argc > 1 ? std::atoi(argv[1]) : 2, rounds = argc > 2 ? std::atoi(argv[2]) : 7;
  at::set_num_threads(1);
  const std::vector<int64_t> numels(kTensors, kElements / kTensors);
  const ShardPlan plan = plan_shards(numels, ranks);
  run_threads(ranks, [&](Group group) {
    std::vector<int64_t> mine;
    for (const ShardPiece& piece : pieces_of(plan, group.rank())) mine.push_back(piece.length);
    auto whole = make_adamw(make(numels)), shard = make_adamw(make(mine));
    auto seconds_of = [&](Optimizer& optimizer) {
      group.barrier();
      const auto begin = Clock::now();
      optimizer.step(1e-3);
      group.barrier();
      return seconds_since(begin);
    };
    seconds_of(*whole);
    seconds_of(*shard);
    std::vector<double> of_whole, of_shard, ratios;
    ForeignLoad load;
    for (int r = 0; r < rounds; ++r) {
      of_whole.push_back(seconds_of(*whole));
      of_shard.push_back(seconds_of(*shard));
      ratios.push_back(of_whole.back() / of_shard.back());
    }
    const double foreign = load.part();
    if (group.rank() == 0)
      std::printf(
          "AdamW, %.0f M float32 parameters, %d ranks, %d rounds, medians\n"
          "every rank all of them  %7.1f ms\n"
          "each rank its shard     %7.1f ms   %.2f x faster (%.2f n) [%.2f, %.2f]\n"
          "foreign load %.1f %%%s\n",
          kElements / 1e6, ranks, rounds, 1e3 * median(of_whole), 1e3 * median(of_shard),
          median(ratios), median(ratios) / ranks, *std::min_element(ratios.begin(), ratios.end()),
          *std::max_element(ratios.begin(), ratios.end()), 100 * foreign,
          foreign > 0.05 ? ": VOID" : "");
  });
}
