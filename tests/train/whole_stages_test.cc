// SPDX-License-Identifier: Apache-2.0
// parallelism.whole_stages: ZeRO-3 gathers and drops the stages of a rank's pipeline between
// micro-batches, as actions of the schedule. The weights are those of stages that stay whole, to
// the bit, and less is in memory at once.
#include <gtest/gtest.h>

#include <map>
#include <mutex>

#include "tests/support/refusals.h"
#include "tests/train/run_folders.h"
#include "trireme/pipeline/schedule/csv.h"
#include "trireme/pipeline/schedule/generators.h"
#include "trireme/pipeline/schedule/messages.h"
#include "trireme/pipeline/schedule/units.h"
#include "trireme/planner/memory_plan.h"
#include "trireme/train/evaluate.h"
#include "trireme/train/model_axes/schedule_table.h"

namespace whole_stages_test {

using namespace trireme;
using namespace trireme::testing;

namespace {

// Bytes of a block of width 32 in float32, whose flat buffer of 50,816 is padded on two ranks.
constexpr int64_t kBlock = 81920;

/// pp 2 × dp 2, ZeRO-3, 4 micro-batches of 2 samples.
Config divided(const Folders& folders, const Sets& more, int64_t layers = 8) {
  Sets sets = {"parallelism.pp=2",
               "zero_optimization.stage=3",
               "zero_optimization.stage3_param_persistence_threshold=0",
               "train_micro_batch_size_per_gpu=2",
               "train_batch_size=16",
               "model.tied_head=false",
               "model.layers=" + std::to_string(layers)};
  sets.insert(sets.end(), more.begin(), more.end());
  return tiny_gpt(folders.corpus, sets);
}

Sets operator+(Sets a, const Sets& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

struct Result {
  std::map<std::string, at::Tensor> shards;  // by rank and name
  std::map<int, int64_t> bytes, gathers;     // of whole units, by rank
  std::vector<double> losses;
  double held_out = 0;
};

Result train(const Config& config, int steps = 3) {
  Result result;
  std::mutex mutex;
  run_threads(4, [&](Group g) {
    trireme::Run run = build_run(config, g);
    start_data(run, config);
    std::vector<double> losses;
    for (int i = 0; i < steps; ++i) losses.push_back(train_step(run).loss);
    const double held_out = evaluate(run).loss;
    auto* sharded = dynamic_cast<FullySharded*>(run.gradients->sharded());
    std::lock_guard lock(mutex);
    for (const auto& [name, t] : run.gradients->owned())
      result.shards[fmt::format("{} {}", g.rank(), name)] = t.detach().clone();
    if (sharded) {
      result.bytes[g.rank()] = sharded->stats().gather_buffer_bytes;
      result.gathers[g.rank()] = sharded->stats().gathers;
    }
    if (g.rank() == 0) result.losses = losses, result.held_out = held_out;
  });
  return result;
}

void expect_same(const Result& a, const Result& b) {
  EXPECT_EQ(a.losses, b.losses);
  EXPECT_EQ(a.held_out, b.held_out);
  ASSERT_EQ(a.shards.size(), b.shards.size());
  for (const auto& [name, t] : a.shards) EXPECT_TRUE(t.equal(b.shards.at(name))) << name;
}

TEST(train_whole_stages, dropped_between_micro_batches_the_weights_have_the_same_bits) {
  const Folders folders;
  struct Case {
    std::string schedule;
    int whole;
    Sets more = {};
  };
  for (const Case& c : {Case{"interleaved_1f1b", 1}, Case{"zb_v", 1},
                        Case{"zb_v", 1, {"training.recompute_every=1"}},
                        Case{"dualpipe_v", 2, {"parallelism.virtual_stages=2"}},
                        Case{"breadth_first", 1, {"parallelism.virtual_stages=4"}}}) {
    Sets sets = c.more;
    sets.push_back("parallelism.schedule=" + c.schedule);
    const Result step = train(divided(folders, sets));
    sets.push_back("parallelism.whole_stages=" + std::to_string(c.whole));
    const Result dropped = train(divided(folders, sets));
    SCOPED_TRACE(c.schedule);
    expect_same(dropped, step);
  }
}

TEST(train_whole_stages, with_one_of_four_stages_whole_a_quarter_of_the_blocks_is_in_memory) {
  const Folders folders;
  const Sets breadth = {"parallelism.schedule=breadth_first", "parallelism.virtual_stages=4"};
  const Result step = train(divided(folders, breadth));
  const Result one = train(divided(folders, breadth + Sets{"parallelism.whole_stages=1"}));
  const Result two = train(divided(folders, breadth + Sets{"parallelism.whole_stages=2"}));
  for (int rank = 0; rank < 4; ++rank) {
    EXPECT_EQ(step.bytes.at(rank) - one.bytes.at(rank), 3 * kBlock) << "rank " << rank;
    EXPECT_EQ(step.bytes.at(rank) - two.bytes.at(rank), 2 * kBlock) << "rank " << rank;
    // Each stage once in each direction; but the last one of the forwards stays for its backwards.
    EXPECT_GT(one.gathers.at(rank), step.gathers.at(rank));
  }
}

TEST(train_whole_stages, the_actions_of_a_table_are_followed) {
  const Folders folders;
  pipeline::Schedule table = pipeline::generate_schedule(
      "interleaved_1f1b", {.ranks = 2, .micro_batches = 4, .stages_per_rank = 2});
  const auto written = [&](const std::string& name, const pipeline::Schedule& s) {
    const std::string path = folders.folder / name;
    write_file_atomic(path, write_table(s));
    return divided(folders, {"parallelism.schedule_file=" + path}, 4);
  };
  const Result step = train(written("plain.csv", table));
  const Result dropped = train(written("units.csv", place_messages(place_units(table, 1))));
  expect_same(dropped, step);
  for (int rank = 0; rank < 4; ++rank) EXPECT_LT(dropped.bytes.at(rank), step.bytes.at(rank));
}

// By name a backward's gradients are waited for as late as can be. A table may wait at once.
TEST(train_whole_stages, the_reductions_of_a_table_are_followed) {
  const Folders folders;
  pipeline::Schedule table = pipeline::generate_schedule(
      "interleaved_1f1b", {.ranks = 2, .micro_batches = 4, .stages_per_rank = 2});
  for (auto& list : table.actions) {
    std::vector<pipeline::Action> at_once;
    for (const pipeline::Action& a : list) {
      at_once.push_back(a);
      if (gives_weight_gradient(a.kind))
        at_once.push_back({pipeline::ActionKind::reduce_gradients, a.stage, a.micro_batch});
    }
    list = at_once;
  }
  const std::string path = folders.folder / "reductions.csv";
  write_file_atomic(path, write_table(table));
  const Sets by_name = {"parallelism.schedule=interleaved_1f1b"};
  const Sets by_table = {"parallelism.schedule_file=" + path};
  for (const Sets& zero :
       {Sets{"zero_optimization.stage=1"}, Sets{"zero_optimization.stage=2"},
        Sets{"zero_optimization.stage=3"},
        Sets{"zero_optimization.stage=3", "parallelism.whole_stages=1"},
        Sets{"zero_optimization.stage=1", "training.reproducible=true", "training.leaves=8"}}) {
    SCOPED_TRACE(zero.back());
    expect_same(train(divided(folders, zero + by_table, 4)),
                train(divided(folders, zero + by_name, 4)));
  }
}

TEST(train_whole_stages, a_schedule_has_the_reductions_that_the_stage_of_zero_makes) {
  const Folders folders;
  const auto has = [&](const Sets& sets) {
    pipeline::Schedule s =
        pipeline::generate_schedule("zb_v", {.ranks = 2, .micro_batches = 4, .stages_per_rank = 2});
    place_zero(divided(folders, sets), s);
    return s.has_reductions();
  };
  const Sets tree = {"training.reproducible=true", "training.leaves=8"};
  EXPECT_FALSE(has({"zero_optimization.stage=0"}));
  EXPECT_FALSE(has(tree + Sets{"zero_optimization.stage=0"}));
  EXPECT_FALSE(has({"zero_optimization.stage=1"}));
  EXPECT_TRUE(has(tree + Sets{"zero_optimization.stage=1"}));
  EXPECT_TRUE(has({"zero_optimization.stage=2"}));
  EXPECT_TRUE(has({"zero_optimization.stage=3"}));
  EXPECT_TRUE(has({"zero_optimization.stage=3", "parallelism.whole_stages=1"}));
}

TEST(train_whole_stages, what_cannot_be_is_refused_before_ranks_start) {
  const Folders folders;
  const auto planned = [&](const Sets& sets) {
    return refusal([&] { plan_memory(divided(folders, sets), 4); });
  };
  EXPECT_NE(planned({"parallelism.schedule=dualpipe_v", "parallelism.whole_stages=1"})
                .find("an overlapped pair uses two stages at once: keep 2 or more whole"),
            std::string::npos);
  EXPECT_NE(refusal([&] {
              divided(folders, {"parallelism.whole_stages=1", "zero_optimization.stage=2"});
            }).find("parallelism.whole_stages is 1, and zero_optimization.stage is 2"),
            std::string::npos);
}

TEST(train_whole_stages, what_is_planned_is_less_by_what_is_dropped) {
  const Folders folders;
  const Sets breadth = {"parallelism.schedule=breadth_first", "parallelism.virtual_stages=4"};
  const int64_t step = plan_memory(divided(folders, breadth), 4).rank.buffers;
  const int64_t one =
      plan_memory(divided(folders, breadth + Sets{"parallelism.whole_stages=1"}), 4).rank.buffers;
  EXPECT_EQ(step - one, 3 * kBlock);
}

}  // namespace
}  // namespace whole_stages_test
