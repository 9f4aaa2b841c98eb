// SPDX-License-Identifier: Apache-2.0
// Memory for time: activations of a GPT of 12 blocks, and the time of a forward and backward, with
// every block recomputed against none. Bytes are LibTorch's allocations: what is alive when forward
// ends, and the most that is alive until backward ends; each gradient goes as it comes, as it goes
// into its bucket in training.
// Time: the median over rounds that alternate; void while others use the machine, and the load says
// so.
//   cmake --build build/release --target recompute && build/release/bench/recompute [ROUNDS]
#include <ATen/ops/randint.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <vector>

#include "trireme/base/clock.h"
#include "trireme/models/gpt.h"
#include "trireme/tensor/live_bytes.h"
#include "trireme/tensor/random/random.h"
#include "trireme/tensor/recompute/recompute_plan.h"
#include "trireme/tensor/torch_compat.h"

using namespace trireme;

namespace {

constexpr int64_t kBlocks = 12, kBatch = 4;
constexpr double kMiB = 1048576;

struct Cost {
  double kept = 0, peak = 0;  // MiB
  std::vector<double> seconds;
  double median() {
    std::nth_element(seconds.begin(), seconds.begin() + static_cast<long>(seconds.size() / 2),
                     seconds.end());
    return seconds[seconds.size() / 2];
  }
};

void step(Gpt& gpt, const at::Tensor& input, const at::Tensor& target, int64_t every,
          LiveBytes& live, Cost& cost) {
  gpt.set_recompute(every_kth(kBlocks, every));
  std::vector<int64_t> samples(kBatch);
  std::iota(samples.begin(), samples.end(), 0);
  RandomScope random({42, 0, samples});
  const int64_t before = live.now();
  live.reset_peak();
  const auto begin = Clock::now();
  at::Tensor loss = gpt.loss_sum(gpt.forward(input), target);
  cost.kept = static_cast<double>(live.now() - before) / kMiB;
  loss.backward();
  cost.seconds.push_back(seconds_since(begin));
  cost.peak = static_cast<double>(live.peak() - before) / kMiB;
}

}  // namespace

int main(int argc, char** argv) {
  const int rounds = argc > 1 ? std::max(1, std::atoi(argv[1])) : 9;
  LiveBytes live;
  GptOptions options;
  options.layers = kBlocks;
  Gpt gpt(options, 1);
  const at::Tensor input = at::randint(256, {kBatch, options.context}, at::kLong),
                   target = at::randint(256, {kBatch, options.context}, at::kLong);
  std::vector<compat::GradHook> drop;
  for (const at::Tensor& p : gpt.parameters())
    drop.emplace_back(p, [p] { p.mutable_grad() = at::Tensor(); });
  Cost plain, again, warm;
  step(gpt, input, target, 0, live, warm);
  step(gpt, input, target, 1, live, warm);
  for (int r = 0; r < rounds; ++r) {
    step(gpt, input, target, 0, live, plain);
    step(gpt, input, target, 1, live, again);
  }
  double load = 0;
  getloadavg(&load, 1);
  const double time = again.median() / plain.median();
  std::printf("GPT, %d blocks of width %d, %d × %d tokens, dropout %g; %d rounds, load %.2f\n",
              static_cast<int>(kBlocks), static_cast<int>(options.width), static_cast<int>(kBatch),
              static_cast<int>(options.context), options.dropout, rounds, load);
  std::printf("kept after forward:  %8.1f MiB  → %7.1f MiB, 1/%.2f\n", plain.kept, again.kept,
              plain.kept / again.kept);
  std::printf("peak until backward: %8.1f MiB  → %7.1f MiB, 1/%.2f  (at least 1/4)\n", plain.peak,
              again.peak, plain.peak / again.peak);
  std::printf("time of a step:      %8.1f ms   → %7.1f ms,  %.2f ×  (at most 1.4)\n",
              1e3 * plain.median(), 1e3 * again.median(), time);
  return plain.peak >= 4 * again.peak && time <= 1.4 ? 0 : 1;
}
