// SPDX-License-Identifier: Apache-2.0
// The table of models that are divided over ranks: every dp × tp × pp of at most 8 ranks against
// one process that has the whole model, then ZeRO stages, schedules, recomputation, precision, tied
// heads and optimizers in pairs. What is compared is the checkpoint that the ranks write together,
// loaded by one process; so each row shows the layouts of state too.
#include <gtest/gtest.h>

#include <functional>
#include <set>

#include "tests/parity/model_axes_rows.h"
#include "trireme/base/check.h"
#include "trireme/train/saving.h"

namespace model_axes_test {

using namespace trireme;
using namespace trireme::testing;
using namespace trireme::testing::model_axes;

namespace {

struct Result {
  NamedTensors weights;
  std::vector<double> losses, norms;
};

Result train_and_save(int ranks, const Config& config, const Config& plain,
                      const std::string& folder, int64_t steps = kSteps) {
  Result result;
  run_threads(
      ranks,
      [&](Group g) {
        trireme::Run run = build_run(config, g);
        start_data(run, config);
        for (int64_t i = 0; i < steps; ++i) {
          const StepReport r = train_step(run);
          if (g.rank() > 0) continue;
          result.losses.push_back(r.loss);
          result.norms.push_back(r.grad_norm);
        }
        save_run(run, folder, 1);
      },
      std::chrono::seconds(60));
  for (const auto& item : load_model(plain, folder)->named_parameters())
    result.weights.emplace_back(item.key(), item.value().detach());
  return result;
}

Result divided(const Row& row, const Folders& folders) {
  return train_and_save(row.ranks(), divided_config(row, folders), plain_config(row, folders),
                        folders.run("divided"));
}

Result plain(const Row& row, const Folders& folders) {
  const Config config = plain_config(row, folders);
  return train_and_save(1, config, config, folders.run("plain"));
}

// On micro-batches whose lengths differ, so that none of them weighs what another does.
std::vector<Row> degrees() {
  std::vector<Row> rows;
  for (int dp = 1; dp <= 8; ++dp)
    for (int tp = 1; dp * tp <= 8; ++tp)
      for (int pp = 1; dp * tp * pp <= 8; ++pp)
        if (dp * tp * pp > 1) rows.push_back({dp, tp, pp, {}, {"data.type=documents"}});
  return rows;
}

std::vector<Row> pairs() {
  const std::string zero = "zero_optimization.stage=", schedule = "parallelism.schedule=";
  const std::string whole_units = "zero_optimization.stage3_param_persistence_threshold=0";
  const std::string sequence = "parallelism.sequence_parallel=true";
  const std::string again = "training.recompute_every=1", tied = "model.tied_head=true";
  const std::string lamb = "optimizer.type=Lamb", adam = "optimizer.type=AdamW";
  const std::string slow = "optimizer.params.lr=0.001";
  const std::string measured = "parallelism.partition_method=measured";
  // Micro-batches of different lengths, whose tokens are fewer than their places.
  const std::string documents = "data.type=documents";
  const std::string bf16 = "bf16.enabled=true", autocast = "torch_autocast.enabled=true";
  const std::string breadth_first = schedule + "breadth_first",
                    two_stages = "parallelism.virtual_stages=2";
  const std::string alike = "training.check_replicas=1";
  const std::string gather = "parallelism.cp_method=all_gather",
                    by_heads = "parallelism.cp_method=all_to_all";
  const std::string undecayed = R"(optimizer.params.no_decay=["wte.weight"])",
                    unadapted = R"(optimizer.params.no_adapt=["wte.weight"])";
  return {
      // Tensor parallelism.
      {1, 2, 1, {sequence}},
      {1, 3, 1, {sequence, again}},
      {1, 2, 1, {sequence}, {tied}},
      {1, 4, 1, {again}, {tied}},
      {2, 2, 1, {zero + "1", sequence}},
      {2, 2, 1, {zero + "2", again}},
      {2, 2, 1, {zero + "3", whole_units}},
      {2, 2, 1, {zero + "3", whole_units, sequence, again}, {tied}},
      {4, 2, 1, {zero + "2", "parallelism.dp_shard=2", sequence}},
      {4, 2, 1, {zero + "3", "parallelism.dp_shard=2"}},
      {2, 2, 1, {zero + "2", sequence}, {lamb, slow}, 1e-3},
      {1, 2, 1, {}, {lamb, slow, tied}, 1e-3},
      {2, 2, 1, {zero + "1"}, {adam, slow}, 1e-2},
      {2, 2, 1, {zero + "2", sequence}, {"bf16.enabled=true"}, 0.1},
      {1, 2, 1, {sequence}, {"torch_autocast.enabled=true"}, 0.1},
      // Pipelines.
      {1, 1, 2, {schedule + "gpipe"}},
      {1, 1, 4, {schedule + "zb_h1"}},
      {1, 1, 2, {schedule + "zb_h2"}},
      {1, 1, 2, {schedule + "zb_2p"}},
      {1, 1, 2, {schedule + "interleaved_1f1b"}},
      {1, 1, 2, {schedule + "breadth_first", "parallelism.virtual_stages=2"}},
      {1, 1, 2, {schedule + "zb_v"}},
      {1, 1, 2, {schedule + "dualpipe_v"}},
      {1, 1, 2, {schedule + "interleaved_1f1b"}, {tied, "optimizer.params.momentum=0.9"}},
      {1, 1, 4, {"parallelism.stages=[1,3,2,2]", again}},
      {1, 1, 2, {measured}, {tied}},
      {1, 1, 2, {measured, schedule + "interleaved_1f1b"}, {"bf16.enabled=true"}, 0.1},
      {2, 1, 2, {zero + "1"}, {tied}},
      {2, 1, 2, {zero + "2"}},
      {2, 1, 2, {zero + "2", schedule + "zb_h1", again}, {tied}},
      {2, 1, 2, {zero + "1", schedule + "interleaved_1f1b"}},
      {2, 1, 2, {zero + "1"}, {lamb, slow}, 1e-3},
      {2, 1, 2, {}, {"optimizer.type=Lars"}, 1e-3},
      {4, 1, 2, {zero + "2", "parallelism.dp_shard=2"}, {tied}},
      {2, 1, 2, {zero + "2", schedule + "interleaved_1f1b"}, {tied}},
      {2, 1, 2, {zero + "2", schedule + "zb_v", again}},
      {2, 1, 2, {zero + "3"}, {tied}},
      {2, 1, 2, {zero + "3", whole_units, again}},
      {2, 1, 2, {zero + "3", whole_units, schedule + "zb_h1"}},
      {2, 1, 2, {zero + "3", whole_units, schedule + "interleaved_1f1b", again}},
      {2, 1, 2, {zero + "3", schedule + "breadth_first", "parallelism.virtual_stages=2"}, {tied}},
      {2, 1, 2, {zero + "3", whole_units, schedule + "dualpipe_v"}},
      {4, 1, 2, {zero + "3", whole_units, "parallelism.dp_shard=2"}},
      {2, 1, 2, {zero + "3", whole_units}, {lamb, slow}, 1e-3},
      {2, 1, 2, {zero + "3", whole_units}, {"bf16.enabled=true"}, 0.1},
      {1, 1, 2, {}, {"bf16.enabled=true"}, 0.1},
      {1, 1, 2, {schedule + "zb_h1"}, {"torch_autocast.enabled=true"}, 0.1},
      {1, 1, 2, {schedule + "gpipe", again}, {tied, autocast}, 0.1},
      {1, 1, 2, {schedule + "gpipe"}, {bf16}, 0.1},
      {1, 1, 2, {again}, {bf16}, 0.1},
      {1, 1, 2, {}, {tied, autocast}, 0.1},
      {1, 1, 2, {schedule + "interleaved_1f1b"}, {autocast}, 0.1},
      {1, 1, 2, {breadth_first, two_stages, again}, {bf16}, 0.1},
      {1, 1, 2, {breadth_first, two_stages}, {autocast}, 0.1},
      {1, 1, 2, {schedule + "zb_h1"}, {bf16}, 0.1},
      {1, 1, 2, {schedule + "zb_h2", again}, {tied, bf16}, 0.1},
      {1, 1, 2, {schedule + "zb_h2"}, {autocast}, 0.1},
      {1, 1, 2, {schedule + "zb_2p", again}, {tied, autocast}, 0.1},
      {1, 1, 2, {schedule + "zb_2p"}, {bf16}, 0.1},
      {1, 1, 2, {schedule + "zb_v"}, {autocast}, 0.1},
      {1, 1, 2, {schedule + "dualpipe_v", again}, {autocast}, 0.1},
      {1, 1, 2, {schedule + "dualpipe_v"}, {bf16}, 0.1},
      {2, 2, 1, {zero + "1", again}, {tied, autocast}, 0.1},
      {2, 1, 2, {zero + "1"}, {bf16}, 0.1},
      {2, 1, 2, {zero + "2"}, {autocast}, 0.1},
      {2, 2, 1, {zero + "3", whole_units, sequence}, {autocast}, 0.1},
      // A tied head whose ends are on one rank.
      {1, 1, 2, {schedule + "zb_v", alike}, {tied}},
      {1, 1, 2, {schedule + "dualpipe_v", alike}, {tied, "optimizer.params.momentum=0.9"}},
      {2, 1, 2, {zero + "1", schedule + "zb_v", alike}, {tied, adam, slow, undecayed}, 1e-2},
      {2, 1, 2, {zero + "1", schedule + "dualpipe_v", alike}, {tied}},
      {2, 1, 2, {zero + "2", schedule + "zb_v", again, alike}, {tied}},
      {2, 1, 2, {zero + "2", schedule + "dualpipe_v", alike}, {tied, lamb, slow}, 1e-3},
      {2, 1, 2, {zero + "3", whole_units, schedule + "zb_v"}, {tied}},
      {2, 1, 2, {zero + "3", schedule + "dualpipe_v"}, {tied, lamb, slow, unadapted}, 1e-3},
      {4, 1, 2, {zero + "2", "parallelism.dp_shard=2", schedule + "zb_v", alike}, {tied}},
      {1, 2, 2, {schedule + "zb_v", sequence, alike}, {tied}},
      {2, 2, 2, {zero + "3", schedule + "dualpipe_v", sequence}, {tied}},
      {1, 1, 2, {schedule + "zb_v", alike}, {tied, "bf16.enabled=true"}, 0.1},
      // All of them.
      {1, 2, 2, {schedule + "zb_h1"}},
      {1, 2, 2, {schedule + "zb_h1", sequence}},
      {1, 2, 2, {schedule + "zb_v"}},
      {2, 2, 2, {zero + "1", sequence, schedule + "zb_h1"}},
      {2, 2, 2, {zero + "2", sequence}, {tied}},
      {2, 2, 2, {schedule + "interleaved_1f1b", sequence, again}, {tied}},
      {2, 2, 2, {zero + "2", again}, {lamb, slow}, 1e-3},
      {2, 2, 2, {zero + "3", whole_units, sequence, schedule + "zb_h1"}, {tied}},
      {2, 2, 2, {zero + "3", schedule + "zb_v", again}},
      {2, 2, 2, {measured, sequence}},
      // Lengths and weights that differ.
      {1, 2, 1, {}, {documents}},
      {2, 2, 1, {sequence, again}, {documents, tied}},
      {1, 1, 2, {}, {documents}},
      {1, 1, 2, {schedule + "breadth_first", "parallelism.virtual_stages=2"}, {documents}},
      {2, 1, 2, {zero + "1"}, {documents}},
      {2, 1, 2, {zero + "3", whole_units}, {documents}},
      {1, 2, 2, {schedule + "zb_h1", sequence}, {documents, tied}},
      {2, 2, 2, {}, {documents}},
      // Positions.
      {1, 1, 1, {alike}, {documents}, 1e-5, 2},
      {1, 1, 1, {gather, again}, {documents, tied}, 1e-5, 2},
      {2, 1, 1, {zero + "1", by_heads}, {}, 1e-5, 2},
      {1, 1, 1, {zero + "3", whole_units}, {documents}, 1e-5, 3},
      {1, 2, 1, {zero + "2", sequence}, {documents, tied}, 1e-5, 2},
      {1, 1, 2, {schedule + "zb_h1"}, {documents}, 1e-5, 2},
      {1, 2, 2, {zero + "1", sequence, by_heads}, {}, 1e-5, 2},
      {1, 1, 1, {zero + "2"}, {bf16}, 0.1, 2},
      {1, 2, 1, {gather}, {autocast}, 0.1, 2},
      {2, 1, 1, {zero + "2"}, {lamb, slow}, 1e-3, 2},
      {1, 1, 1, {}, {"model.dropout=0.2", documents}, 1e-5, 2},
      {1, 2, 1, {sequence, gather}, {"model.dropout=0.2", documents}, 1e-5, 2},
  };
}

class parity_model_axes : public ::testing::TestWithParam<Row> {};

TEST_P(parity_model_axes, weights_after_20_steps_are_those_of_one_process) {
  const Row row = GetParam();
  const Folders folders;
  const Result want = plain(row, folders), got = divided(row, folders);
  expect_a_reference(want.losses, want.norms);
  EXPECT_LT(relative_distance(got.weights, want.weights), row.tolerance);
  expect_near(got.losses, want.losses, row.tolerance);
  expect_near(got.norms, want.norms, row.tolerance);
}

INSTANTIATE_TEST_SUITE_P(degrees, parity_model_axes, ::testing::ValuesIn(degrees()), row_name);
INSTANTIATE_TEST_SUITE_P(pairs, parity_model_axes, ::testing::ValuesIn(pairs()), row_name);

// What a row chooses of each: ZeRO's stage, the schedule, recomputation, precision, tying.
std::vector<std::string> choices_of(const Row& row) {
  std::vector<std::string> found = {"stage=0", row.pp > 1 ? "schedule=1f1b" : "", "whole",
                                    "float32", "untied"};
  for (const Sets* sets : {&row.sets, &row.of_both})
    for (const std::string& set : *sets) {
      if (set.starts_with("zero_optimization.stage=")) found[0] = set.substr(18);
      if (set.starts_with("parallelism.schedule=")) found[1] = set.substr(12);
      if (set == "training.recompute_every=1") found[2] = "recomputed";
      if (set == "bf16.enabled=true") found[3] = "bf16";
      if (set == "torch_autocast.enabled=true") found[3] = "autocast";
      if (set == "model.tied_head=true") found[4] = "tied";
    }
  return found;
}

TEST(parity_model_axes_rows, each_two_choices_meet_in_one) {
  std::set<std::pair<std::string, std::string>> met;
  std::vector<std::set<std::string>> of(5);
  for (const Row& row : pairs()) {
    const auto choices = choices_of(row);
    for (size_t i = 0; i < choices.size(); ++i) {
      if (choices[i].empty()) continue;
      of[i].insert(choices[i]);
      for (size_t j = i + 1; j < choices.size(); ++j) met.insert({choices[i], choices[j]});
    }
  }
  const size_t expected[] = {4, 9, 2, 3, 2};
  for (size_t i = 0; i < of.size(); ++i) EXPECT_EQ(of[i].size(), expected[i]) << i;
  for (size_t i = 0; i < of.size(); ++i)
    for (size_t j = i + 1; j < of.size(); ++j)
      for (const std::string& a : of[i])
        for (const std::string& b : of[j]) {
          if (i == 0 && j == 1) continue;  // parity_model_axes_bits has all of those
          EXPECT_TRUE(met.count({a, b})) << a << " with " << b;
        }
}

TEST(parity_model_axes_naive, one_micro_batch_is_naive_model_parallelism) {
  const Row row{1, 1, 2};
  const Folders folders;
  const Result want = plain(row, folders);
  const Config config = config_of(
      row, folders,
      {"parallelism.pp=2", "parallelism.schedule=gpipe", "train_micro_batch_size_per_gpu=8"});
  EXPECT_EQ(config.resolve_batches(2).accumulation, 1);
  const Result got = train_and_save(2, config, plain_config(row, folders), folders.run("divided"));
  EXPECT_LT(relative_distance(got.weights, want.weights), row.tolerance);
  expect_near(got.losses, want.losses, row.tolerance);
  expect_near(got.norms, want.norms, row.tolerance);
}

TEST(parity_model_axes_bits, pipelines_and_zero_over_stages_are_one_process_to_the_bit) {
  const Folders folders;
  const auto config = [&](const Sets& more) {
    Sets sets = {"train_batch_size=16", "training.reproducible=true", "training.leaves=8",
                 "model.layers=4", "model.tied_head=false"};
    sets.insert(sets.end(), more.begin(), more.end());
    return tiny_gpt(folders.corpus, sets);
  };
  const Config alone = config({});
  const Result want = train_and_save(1, alone, alone, folders.run("plain"));
  for (const std::string schedule : {"gpipe", "1f1b", "zb_h1", "zb_h2", "zb_2p", "interleaved_1f1b",
                                     "breadth_first", "zb_v", "dualpipe_v"})
    for (int dp : {1, 2})
      for (int stage : {0, 1, 2, 3}) {
        const bool folded = schedule == "interleaved_1f1b" || schedule == "breadth_first" ||
                            schedule.ends_with("_v");
        if (stage > 0 && dp == 1) continue;
        const int pp = folded || (schedule == "zb_h2" && dp == 2) ? 2 : 4;
        const std::string name = fmt::format("{}_dp{}_stage{}", schedule, dp, stage);
        const Config c =
            config({fmt::format("parallelism.pp={}", pp), "parallelism.schedule=" + schedule,
                    fmt::format("zero_optimization.stage={}", stage)});
        const Result got = train_and_save(dp * pp, c, alone, folders.run(name));
        EXPECT_EQ(first_difference(got.weights, want.weights), "") << name;
        EXPECT_EQ(got.losses, want.losses) << name;
        EXPECT_EQ(got.norms, want.norms) << name;
      }
}

// Its update divides by a factored second moment: what rounding does to a gradient that is nearly
// zero is as large as the step, so only bits tell right from wrong.
TEST(parity_model_axes_bits, adafactor_beside_stages_is_one_process_to_the_bit) {
  const Folders folders;
  const auto config = [&](const Sets& more) {
    Sets sets = {"train_batch_size=8",      "training.reproducible=true",
                 "training.leaves=8",       "model.layers=4",
                 "model.tied_head=false",   "optimizer.type=Adafactor",
                 "optimizer.params.lr=1e-2"};
    sets.insert(sets.end(), more.begin(), more.end());
    return tiny_gpt(folders.corpus, sets);
  };
  const Config alone = config({});
  const Result want = train_and_save(1, alone, alone, folders.run("plain"));
  for (const int pp : {2, 4})
    for (const int dp : {1, 2}) {
      const std::string name = fmt::format("pp{}_dp{}", pp, dp);
      const Result got = train_and_save(dp * pp, config({fmt::format("parallelism.pp={}", pp)}),
                                        alone, folders.run(name));
      EXPECT_EQ(first_difference(got.weights, want.weights), "") << name;
      EXPECT_EQ(got.losses, want.losses) << name;
    }
}

// A layout writes, and another goes on from there, to where it would have come alone: of these
// rows, the first of which is one process, those pairs that are to be taken.
void expect_to_go_on(const std::vector<Row>& rows,
                     const std::function<bool(const Row& from, const Row& to)>& is_taken) {
  const Folders folders;
  const auto config = [&](const Row& row) {
    Sets sets = {"train_batch_size=16",
                 "model.layers=4",
                 "train_micro_batch_size_per_gpu=" + std::to_string(row.pp > 1 ? 2 : 4),
                 "optimizer.params.lr=0.001",
                 "parallelism.tp=" + std::to_string(row.tp),
                 "parallelism.cp=" + std::to_string(row.cp),
                 "parallelism.pp=" + std::to_string(row.pp)};
    sets.insert(sets.end(), row.sets.begin(), row.sets.end());
    return tiny_gpt(folders.corpus, sets);
  };
  const Config alone = config(rows[0]);
  const auto train = [&](const Row& row, const std::string& from, const std::string& to,
                         int64_t until) {
    const Config c = config(row);
    run_threads(
        row.ranks(),
        [&](Group g) {
          trireme::Run run = build_run(c, g);
          if (!from.empty()) load_run(run, from);
          start_data(run, c);
          while (run.step < until) train_step(run);
          save_run(run, to, 1);
        },
        std::chrono::seconds(60));
  };
  const auto weights_in = [&](const std::string& folder) {
    NamedTensors all;
    for (const auto& item : load_model(alone, folder)->named_parameters())
      all.emplace_back(item.key(), item.value().detach());
    return all;
  };
  train(rows[0], "", folders.run("calm"), 6);
  const NamedTensors want = weights_in(folders.run("calm"));
  for (size_t i = 0; i < rows.size(); ++i) {
    const std::string half = folders.run(fmt::format("half_{}", i));
    train(rows[i], "", half, 3);
    for (size_t j = 0; j < rows.size(); ++j) {
      if (!is_taken(rows[i], rows[j])) continue;
      const std::string end = folders.run(fmt::format("end_{}_{}", i, j));
      train(rows[j], half, end, 6);
      EXPECT_LT(relative_distance(weights_in(end), want), 2e-3)
          << text_of(rows[i]) << " -> " << text_of(rows[j]);
    }
  }
}

TEST(parity_model_axes_resume, every_layout_goes_on_from_every_other) {
  expect_to_go_on({{1, 1, 1},
                   {2, 1, 1, {"zero_optimization.stage=3"}},
                   {1, 2, 1, {"parallelism.sequence_parallel=true"}},
                   {1, 1, 2},
                   {2, 2, 1, {"zero_optimization.stage=2"}},
                   {1, 2, 2, {"parallelism.schedule=zb_h1"}},
                   {2, 1, 2, {"zero_optimization.stage=3"}},
                   {1, 1, 2, {"parallelism.schedule=zb_v"}},
                   {2, 2, 2, {"zero_optimization.stage=1"}}},
                  [](const Row&, const Row&) { return true; });
}

TEST(parity_model_axes_resume, ranks_that_divide_rows_go_on_from_those_that_do_not_and_back) {
  expect_to_go_on({{1, 1, 1},
                   {1, 2, 1, {"zero_optimization.stage=1"}},
                   {2, 1, 2, {"zero_optimization.stage=3"}},
                   {1, 1, 1, {"zero_optimization.stage=3"}, {}, 1e-5, 2},
                   {1, 2, 2, {"parallelism.cp_method=all_gather"}, {}, 1e-5, 2}},
                  [](const Row& from, const Row& to) { return (from.cp > 1) != (to.cp > 1); });
}

}  // namespace
}  // namespace model_axes_test
