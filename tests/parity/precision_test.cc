// SPDX-License-Identifier: Apache-2.0
// Mixed precision over ranks is mixed precision on one: what differs is where half-precision sums
// are rounded.
#include <gtest/gtest.h>

#include "tests/train/small_runs.h"

namespace precision_test {

using namespace trireme;
using namespace trireme::testing;

namespace {

constexpr int64_t kSteps = 4;

NamedTensors stored_of(const Run& run) {
  NamedTensors all;
  for (const auto& [name, w] : run.weights) all.emplace_back(name, w.detach().clone());
  return all;
}

struct Ended {
  NamedTensors weights;
  std::vector<double> losses;
  std::vector<bool> skipped;
};

Ended train_here(const Config& config, Group g, int64_t steps,
                 const std::function<void(Run&)>& prepare = {}) {
  trireme::Run run = build_run(config, g);
  start_data(run, config);
  if (prepare) prepare(run);
  Ended e;
  for (int64_t i = 0; i < steps; ++i) {
    const StepReport r = train_step(run);
    e.losses.push_back(r.loss);
    e.skipped.push_back(r.skipped);
  }
  e.weights = stored_of(run);
  return e;
}

std::vector<Ended> train_on_ranks(int n, const Config& config) {
  std::vector<Ended> all(static_cast<size_t>(n));
  run_threads(n,
              [&](Group g) { all[static_cast<size_t>(g.rank())] = train_here(config, g, kSteps); });
  return all;
}

/// The same number of micro-batches on every number of ranks.
Config of(const std::string& model, Sets sets, int ranks) {
  sets.push_back("gradient_accumulation_steps=" + std::to_string(4 / ranks));
  return digits(model, sets);
}

struct Row {
  Sets sets;
  double tolerance;  // ‖w - serial‖ ÷ ‖serial‖ of each tensor after four steps
};

}  // namespace

TEST(parity_precision, one_two_and_four_ranks_equal_serial_within_the_type_s_rounding) {
  // A rounding to bfloat16 is 2^-9 = 2e-3 at most, to float16 2^-12; a rank adds its micro-batches
  // with one rounding each, so another split has others. Autocast's gradients are float32.
  const Row rows[] = {
      {{"bf16.enabled=true"}, 1e-2},
      {{"bf16.enabled=true", "communication_data_type=fp32"}, 1e-2},
      {{"fp16.enabled=true", "fp16.emulate=true"}, 1e-3},
      {{"communication_data_type=fp16"}, 1e-3},
      {{"communication_data_type=bf16"}, 4e-3},
      {{"torch_autocast.enabled=true"}, 2e-5},
      {{"amp.enabled=true", "amp.opt_level=O0"}, 2e-5},
      {{"amp.enabled=true", "amp.opt_level=O1", "amp.dtype=bf16"}, 2e-5},
      {{"amp.enabled=true", "amp.opt_level=O2", "amp.dtype=bf16"}, 1e-2},
      {{"amp.enabled=true", "amp.opt_level=O3", "amp.dtype=bf16"}, 1e-2},
      {{"amp.enabled=true", "amp.opt_level=O2", "fp16.emulate=true"}, 1e-3},
      {{"amp.enabled=true", "amp.opt_level=O3", "fp16.emulate=true"}, 2e-3},
  };
  for (const Row& row : rows) {
    const Ended serial = train_on_ranks(1, of("mlp", row.sets, 1)).at(0);
    for (int n : {2, 4}) {
      const auto all = train_on_ranks(n, of("mlp", row.sets, n));
      SCOPED_TRACE(row.sets[0] + " " + row.sets.back() + " on " + std::to_string(n));
      EXPECT_LT(relative_distance(all[0].weights, serial.weights), row.tolerance);
      for (const auto& rank : all)
        EXPECT_EQ(first_difference(rank.weights, all[0].weights), "") << "ranks differ";
      EXPECT_EQ(all[0].skipped, serial.skipped);
    }
  }
}

TEST(parity_precision, O0_is_float32_to_the_bit) {
  const auto plain = train_on_ranks(2, of("mlp", {}, 2)),
             o0 = train_on_ranks(2, of("mlp", {"amp.enabled=true", "amp.opt_level=O0"}, 2));
  EXPECT_EQ(first_difference(o0[0].weights, plain[0].weights), "");
}

TEST(parity_precision, a_gpt_in_bfloat16_over_ranks_learns_what_one_learns) {
  PrivateFolder folder;
  const std::string corpus = write_corpus(folder);
  auto config = [&](int n) {
    return tiny_gpt(corpus,
                    {"bf16.enabled=true", "gradient_accumulation_steps=" + std::to_string(4 / n)});
  };
  const Ended serial = train_on_ranks(1, config(1)).at(0);
  for (int n : {2, 4}) {
    const auto all = train_on_ranks(n, config(n));
    for (size_t i = 0; i < serial.losses.size(); ++i)
      EXPECT_NEAR(all[0].losses[i], serial.losses[i], 5e-3 * serial.losses[i]);
  }
}

TEST(parity_precision, all_ranks_skip_the_step_in_which_one_overflows) {
  const Sets sets = {"fp16.enabled=true", "fp16.emulate=true", "fp16.initial_scale_power=8"};
  for (int n : {2, 4}) {
    std::vector<Ended> all(static_cast<size_t>(n));
    run_threads(n, [&](Group g) {
      auto backwards = std::make_shared<int>(0);
      all[static_cast<size_t>(g.rank())] =
          train_here(of("mlp", sets, n), g, 6, [&](trireme::Run& run) {
            const int step = 4 / n * 2, last = g.rank() == n - 1;
            run.model->parameters()[1].register_hook([=](at::Tensor x) {
              return (*backwards)++ == step && last ? x.mul(1e30) : x;  // in the third step
            });
          });
    });
    for (const auto& rank : all) {
      EXPECT_EQ(rank.skipped, (std::vector<bool>{false, false, true, false, false, false}));
      EXPECT_EQ(first_difference(rank.weights, all[0].weights), "");
    }
  }
}

TEST(parity_precision, autocast_keeps_reproducible_mode_s_bits) {
  auto config = [](int n) {
    return digits("mlp", {"torch_autocast.enabled=true", "training.reproducible=true",
                          "gradient_accumulation_steps=" + std::to_string(4 / n)});
  };
  const Ended serial = train_on_ranks(1, config(1)).at(0);
  for (int n : {2, 4})
    EXPECT_EQ(first_difference(train_on_ranks(n, config(n))[0].weights, serial.weights), "");
}

}  // namespace precision_test
