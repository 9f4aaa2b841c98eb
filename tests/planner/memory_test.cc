// SPDX-License-Identifier: Apache-2.0
#include "trireme/planner/memory.h"

#include <gtest/gtest.h>

#include "trireme/base/error.h"

namespace memory_test {

using namespace trireme;

namespace {

/// One root parameter and `blocks` blocks of a matrix and a bias.
std::vector<ParameterShape> blocks_of(int blocks, int64_t width) {
  std::vector<ParameterShape> p = {{"embedding", {3 * width, width}, 0}};
  for (int i = 1; i <= blocks; ++i) {
    p.push_back({"blocks." + std::to_string(i) + ".weight", {width, 4 * width}, i});
    p.push_back({"blocks." + std::to_string(i) + ".bias", {width}, i});
  }
  return p;
}

MemoryQuestion question(int stage, int n, std::vector<ParameterShape> parameters) {
  MemoryQuestion q;
  q.parameters = std::move(parameters);
  q.stage = stage;
  q.dp_shard = n;
  q.bucket_elements = 1 << 20;
  q.prefetch_elements = 1;
  q.live_elements = int64_t{1} << 40;
  return q;
}

MemoryQuestion mixed(MemoryQuestion q) {
  q.weight_bytes = q.gradient_bytes = q.wire_bytes = 2;
  q.master_bytes = 4;
  return q;
}

const char* kOptimizers[] = {"AdamW", "Adam", "AdaMod",  "Lamb",   "Lion",
                             "SGD",   "Lars", "RMSprop", "Adagrad"};

}  // namespace

// Rajbhandari et al. 2020, table 1: 7.5 B parameters, mixed precision with Adam, over 64 ranks.
TEST(planner_memory, equals_the_formulas_of_the_zero_paper) {
  const int64_t psi = 7'500'000 * 1024ll / 1024;  // thousands, to stay exact
  std::vector<ParameterShape> one = {{"all", {64 * 1024, psi * 1000 / (64 * 1024)}, 0}};
  const double n = static_cast<double>(one[0].numel());
  const double expected[] = {16.0, 4 + 12.0 / 64, 2 + 14.0 / 64, 16.0 / 64};
  const double gigabytes[] = {120, 31.4, 16.6, 1.88};
  for (int stage = 0; stage <= 3; ++stage) {
    const RankMemory m = rank_memory(mixed(question(stage, 64, one)));
    EXPECT_NEAR(static_cast<double>(m.states()) / n, expected[stage], 1e-4) << stage;
    EXPECT_NEAR(static_cast<double>(m.states()) * 1e-9, gigabytes[stage], 0.06) << stage;
  }
}

TEST(planner_memory, a_higher_stage_or_more_ranks_never_hold_more_states) {
  for (int64_t width : {8, 33, 64, 257})
    for (const char* optimizer : kOptimizers)
      for (bool half : {false, true})
        for (int n = 1; n <= 16; ++n) {
          int64_t before = 0;
          for (int stage = 1; stage <= 3; ++stage) {
            auto q = question(stage, n, blocks_of(5, width));
            q.optimizer = {optimizer, true, false};
            if (half) q = mixed(q);
            const RankMemory m = rank_memory(q);
            EXPECT_EQ(m.total(), m.weights + m.gradients + m.optimizer + m.activations + m.buffers);
            if (stage > 1) {
              EXPECT_LE(m.states(), before) << width << n << stage;
            }
            before = m.states();
            // Shards of all ranks together are the flat buffer: nothing is lost, and padding is
            // bounded.
            const auto units = padded_units(q.parameters, n);
            int64_t flat = 0;
            for (int64_t u : units) {
              flat += u;
              EXPECT_EQ(u % (n * kShardAlign), 0);
            }
            const std::string& type = q.optimizer.type;
            const bool two =
                type == "AdamW" || type == "Adam" || type == "Lamb" || type == "RMSprop";
            const int64_t s = (type == "AdaMod" ? 3 : two ? 2 : 1) * 4 + q.master_bytes;
            EXPECT_EQ(m.optimizer * n, flat * s) << optimizer;
            if (stage == 3) {
              EXPECT_EQ(m.weights * n, flat * q.weight_bytes);
            }
            if (stage >= 2) {
              EXPECT_EQ(m.gradients * n, flat * q.gradient_bytes);
            }
          }
        }
}

TEST(planner_memory, states_fall_with_the_ranks_where_padding_is_none) {
  // Powers of two, large enough that every unit divides.
  for (int stage = 1; stage <= 3; ++stage) {
    int64_t before = -1;
    for (int n = 1; n <= 16; n *= 2) {
      auto parameters = blocks_of(4, 512);
      for (auto& p : parameters)
        if (p.shape.size() == 1) p.shape = {16 * 1024};
      const RankMemory m = rank_memory(question(stage, n, parameters));
      const RankMemory all = rank_memory(question(0, 1, parameters));
      EXPECT_EQ(m.optimizer * n, all.optimizer);
      EXPECT_LE(m.states(), all.states());
      if (before >= 0) {
        EXPECT_LT(m.states(), before) << n;
      }
      before = m.states();
    }
  }
}

TEST(planner_memory, stage_0_counts_every_element_once) {
  const auto parameters = blocks_of(2, 10);
  int64_t n = 0;
  for (const auto& p : parameters) n += p.numel();
  const RankMemory m = rank_memory(question(0, 1, parameters));
  EXPECT_EQ(m.weights, 4 * n);
  EXPECT_EQ(m.optimizer, 8 * n);
  EXPECT_GE(m.gradients, 4 * n);
  EXPECT_LT(m.gradients, 4 * n + 64 * static_cast<int64_t>(parameters.size()));
  EXPECT_EQ(m.buffers, 4 * 400);  // the largest gradient, on its way
}

TEST(planner_memory, shared_weights_cost_a_shard) {
  auto q = question(1, 4, blocks_of(4, 64));
  const int64_t whole = rank_memory(q).weights;
  q.share_weights = true;
  EXPECT_EQ(rank_memory(q).weights * 4, whole);
}

TEST(planner_memory, what_is_on_disk_leaves_its_buffers) {
  for (int stage = 1; stage <= 3; ++stage) {
    auto q = mixed(question(stage, 2, blocks_of(4, 64)));
    const RankMemory inside = rank_memory(q);
    q.states_on_disk = true;
    q.state_buffer_elements = 2048;
    const RankMemory out = rank_memory(q);
    EXPECT_EQ(out.optimizer, 0);
    EXPECT_EQ(out.buffers, inside.buffers + 2048 * 12);
    q.state_buffer_elements = int64_t{1} << 40;  // never more than there is
    EXPECT_EQ(rank_memory(q).total(), inside.total());
  }
  auto q = question(3, 2, blocks_of(4, 64));
  const RankMemory inside = rank_memory(q);
  q.parameters_on_disk = true;
  EXPECT_EQ(rank_memory(q).weights, 0);
  EXPECT_LT(rank_memory(q).total(), inside.total());
}

TEST(planner_memory, parameters_that_persist_stay_whole) {
  auto q = question(3, 4, blocks_of(3, 64));
  const int64_t sharded = rank_memory(q).weights;
  q.persistence_threshold = 65;  // the three biases
  EXPECT_EQ(rank_memory(q).weights, sharded + 3 * 64 * 4);
}

TEST(planner_memory, prefetch_and_live_parameters_bound_the_units_in_flight) {
  const std::vector<int64_t> units = {1000, 100, 100, 100, 100};
  EXPECT_EQ(units_in_flight(units, 0, 1 << 20), 1);
  EXPECT_EQ(units_in_flight(units, 1, 1 << 20), 2);  // a unit is gathered in one piece
  EXPECT_EQ(units_in_flight(units, 250, 1 << 20), 3);
  EXPECT_EQ(units_in_flight(units, 1 << 20, 1 << 20), 4);  // there are no more
  EXPECT_EQ(units_in_flight(units, 1 << 20, 1250), 2);
  EXPECT_EQ(units_in_flight(units, 1 << 20, 0), 1);  // one has to be
  EXPECT_EQ(units_in_flight({1000}, 5, 5), 0);
}

TEST(planner_memory, every_optimizer_says_its_state) {
  const ParameterShape matrix{"w", {30, 5, 4}, 0}, vector{"b", {30}, 0}, row{"r", {1, 30}, 0};
  auto numbers = [&](const char* type, bool momentum = false, bool centered = false) {
    return state_numbers({type, momentum, centered}, matrix);
  };
  EXPECT_EQ(numbers("AdamW"), 1200);
  EXPECT_EQ(numbers("AdaMod"), 1800);
  EXPECT_EQ(numbers("Lion"), 600);
  EXPECT_EQ(numbers("SGD"), 0);
  EXPECT_EQ(numbers("SGD", true), 600);
  EXPECT_EQ(numbers("RMSprop"), 600);
  EXPECT_EQ(numbers("RMSprop", true, true), 1800);
  EXPECT_EQ(numbers("Adafactor"), 30 + 20);
  EXPECT_EQ(state_numbers({"Adafactor"}, vector), 30);
  EXPECT_EQ(state_numbers({"Adafactor"}, row), 30);
  EXPECT_THROW(numbers("Muon"), UsageError);
}

TEST(planner_memory, what_does_not_exist_is_refused) {
  EXPECT_THROW(rank_memory(question(4, 1, {})), UsageError);
  EXPECT_THROW(rank_memory(question(1, 0, {})), UsageError);
  auto q = question(1, 2, blocks_of(1, 8));
  q.optimizer.type = "Adafactor";
  EXPECT_THROW(rank_memory(q), UsageError);
}

}  // namespace memory_test
