// SPDX-License-Identifier: Apache-2.0
// A rank under a limit of memory that its batch does not fit.
#include "tests/support/memory_limit.h"

#include <gtest/gtest.h>

#include "tests/shard/offload_child.h"
#include "tests/train/small_runs.h"
#include "trireme/comm/start/run.h"
#include "trireme/train/balance/memory_backoff.h"

namespace trireme::testing::memory_limit_test {
namespace {

constexpr size_t kMiB = size_t{1} << 20;

/// Steps of 512 samples with 64 MiB of activations for all at once, and 80 MiB of memory.
void train_under_a_limit(const char* backoff) {
  const Config config =
      digits("mlp", {"data.type=dummy", "data.train_samples=4096", "train_batch_size=512",
                     "model.inputs=8", "model.hidden=[16384]", "optimizer.params.momentum=0",
                     "balance.mode=throughput", std::string("balance.memory_backoff=") + backoff});
  run_threads(1, [&](Group g) {
    trireme::Run run = build_run(config, g);
    start_data(run, config);
    // OpenBLAS takes its buffer at the first product, and asks without end where there is none.
    at::mm(at::ones({256, 256}), at::ones({256, 256}));
    limit_data(80 * kMiB);
    for (int i = 0; i < 2; ++i) {
      const StepReport r = train_step(run);
      check<Error>(r.weight == 512 && std::isfinite(r.loss), "{} samples, loss {}", r.weight,
                   r.loss);
    }
    const int64_t found = run.find<MemoryBackoff>()->limits()[0];
    check<Error>(found > 0 && found < 512, "a limit of {} samples", found);
  });
}

/// 3.2 M parameters: 51 MB of weights, gradients and Adam's moments.
void train_a_large_gpt(Group g, const Sets& more) {
  Sets sets = {"data.type=dummy",      "model.width=256",    "model.layers=4",
               "model.tied_head=true", "train_batch_size=8", "train_micro_batch_size_per_gpu=2"};
  sets.insert(sets.end(), more.begin(), more.end());
  const Config config = tiny_gpt("", sets);
  at::mm(at::ones({256, 256}), at::ones({256, 256}));
  limit_data(40 * kMiB);
  trireme::Run run = build_run(config, g);
  start_data(run, config);
  for (int i = 0; i < 2; ++i) {
    const StepReport r = train_step(run);
    check<Error>(r.weight == 8 * 16 && std::isfinite(r.loss), "{} tokens, loss {}", r.weight,
                 r.loss);
  }
}

}  // namespace

TEST(train_memory_limit, a_model_beyond_a_ranks_limit_trains_over_parts_and_stages) {
  if (!std::getenv("TRIREME_SPAWN")) {
    const std::string alone =
        in_child([] { run_threads(1, [](Group g) { train_a_large_gpt(g, {}); }); });
    EXPECT_TRUE(has(alone, "memory") || has(alone, "alloc")) << alone;
  }
  SpawnOptions options;
  options.timeout = std::chrono::seconds(60);
  options.args = {"--gtest_filter=train_memory_limit.a_model_beyond*"};
  spawn(
      4,
      [](Group g) {
        train_a_large_gpt(g, {"parallelism.tp=2", "parallelism.pp=2"});
      },
      options);
}

TEST(train_memory_limit, a_batch_that_does_not_fit_trains_in_smaller_micro_batches) {
  EXPECT_EQ(in_child([] { train_under_a_limit("true"); }), "");
}

TEST(train_memory_limit, and_ends_the_run_without_back_off) {
  const std::string text = in_child([] { train_under_a_limit("false"); });
  EXPECT_TRUE(has(text, "memory") || has(text, "alloc")) << text;
}

}  // namespace trireme::testing::memory_limit_test
