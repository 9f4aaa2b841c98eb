// SPDX-License-Identifier: Apache-2.0
// parallelism.schedule_file: a pipeline by a table from a file.
#include <gtest/gtest.h>

#include "tests/support/refusals.h"
#include "tests/train/chain_programs.h"
#include "tests/train/program_runs.h"
#include "tests/train/run_folders.h"
#include "trireme/pipeline/schedule/csv.h"
#include "trireme/pipeline/schedule/generators.h"
#include "trireme/pipeline/schedule/messages.h"
#include "trireme/pipeline/schedule/units.h"

namespace schedule_file_test {

using namespace trireme;
using namespace trireme::testing;

namespace {

constexpr int kRanks = 2, kMicroBatches = 8;

pipeline::Schedule named(const std::string& name) {
  int each = 1;
  for (const auto& kind : pipeline::schedule_kinds())
    if (name == kind.name) each = kind.stages_per_rank;
  return pipeline::generate_schedule(
      name,
      {.ranks = kRanks, .micro_batches = kMicroBatches, .stages_per_rank = std::max(each, 1)});
}

/// Both forms that `trireme plan schedule --csv` writes.
std::vector<std::string> tables_of(const pipeline::Schedule& schedule) {
  return {pipeline::write_table(schedule),
          pipeline::write_table(pipeline::place_messages(pipeline::place_units(schedule),
                                                         pipeline::Receives::one_ahead))};
}

Sets operator+(Sets a, const Sets& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

const Sets kPipeline = {"train_batch_size=16", "train_micro_batch_size_per_gpu=2",
                        "parallelism.pp=2", "training.reproducible=true", "training.leaves=8"};

Sets by_name(const std::string& name) { return {"parallelism.schedule=" + name}; }
Sets by_file(const std::string& path) { return {"parallelism.schedule_file=" + path}; }

/// What each rank came to after three steps.
std::vector<Trained> gpt(const std::string& corpus, const Sets& sets) {
  return train_on_threads(kRanks, tiny_gpt(corpus, kPipeline + Sets{"model.layers=4"} + sets), 3);
}

std::vector<Ran> chain(const Sets& sets) {
  std::vector<Ran> all(kRanks);
  const Config config = config_for<DeepProgram>(kPipeline + sets);
  run_threads(
      kRanks,
      [&](Group g) { all[static_cast<size_t>(g.rank())] = run_program<DeepProgram>(config, g, 3); },
      std::chrono::seconds(60));
  return all;
}

void expect_same_bits(const std::vector<Trained>& a, const std::vector<Trained>& b,
                      const std::string& what) {
  for (size_t r = 0; r < a.size(); ++r) {
    EXPECT_EQ(first_difference(a[r].weights, b[r].weights), "") << what;
    EXPECT_EQ(a[r].losses, b[r].losses) << what;
    EXPECT_EQ(a[r].norms, b[r].norms) << what;
  }
}

const char* const kNames[] = {"1f1b", "interleaved_1f1b", "breadth_first", "zb_h1",
                              "zb_v", "dualpipe_v"};

}  // namespace

TEST(train_schedule_file, a_table_trains_to_the_bits_of_its_schedule) {
  const Folders folders;
  const std::string file = folders.folder / "table.csv";
  for (const std::string name : kNames) {
    const std::vector<Trained> want = gpt(folders.corpus, by_name(name));
    for (const std::string& table : tables_of(named(name))) {
      write_file_atomic(file, table);
      expect_same_bits(gpt(folders.corpus, by_file(file)), want, name);
    }
  }
}

TEST(train_schedule_file, zero_goes_with_a_table) {
  const Folders folders;
  const std::string file = folders.folder / "table.csv";
  write_file_atomic(file, tables_of(named("zb_v"))[1]);
  const auto run = [&](const Sets& sets) {
    return train_on_threads(
        4,
        tiny_gpt(
            folders.corpus,
            kPipeline + Sets{"model.layers=4", "train_batch_size=32", "training.leaves=16"} + sets),
        3);
  };
  for (const char* stage : {"0", "1", "2", "3"}) {
    const Sets zero = {std::string("zero_optimization.stage=") + stage};
    expect_same_bits(run(zero + by_file(file)), run(zero + by_name("zb_v")), stage);
  }
}

TEST(train_schedule_file, a_program_trains_to_the_bits_of_its_schedule) {
  const PrivateFolder folder;
  const std::string file = folder / "table.csv";
  for (const std::string name : kNames) {
    const std::vector<Ran> want = chain(by_name(name));
    for (const std::string& table : tables_of(named(name))) {
      write_file_atomic(file, table);
      const std::vector<Ran> got = chain(by_file(file));
      for (size_t r = 0; r < got.size(); ++r) {
        EXPECT_EQ(first_difference(got[r].weights, want[r].weights), "") << name;
        EXPECT_EQ(got[r].losses, want[r].losses) << name;
      }
    }
  }
}

// No schedule with a name: the stages zigzag, the last one is on rank 1 beside the first, and rank
// 1 computes all forwards before it computes a backward.
TEST(train_schedule_file, an_order_of_ones_own_trains_what_one_process_trains) {
  const Folders folders;
  std::string rank_0, rank_1;
  for (const char* what : {"F", "B"})
    for (int i = 0; i < kMicroBatches; ++i) {
      const bool f = *what == 'F';
      rank_0 += fmt::format("1{}{},", what, i);
      rank_1 += fmt::format("{}{}{},{}{}{},", f ? 0 : 2, what, i, f ? 2 : 0, what, i);
    }
  const std::string file = folders.folder / "table.csv";
  write_file_atomic(file, rank_0 + "\n" + rank_1 + "\n");
  const Sets untied = {"model.tied_head=false", "model.layers=3", "train_batch_size=16",
                       "training.reproducible=true", "training.leaves=8"};
  const Trained want = train_on_threads(1, tiny_gpt(folders.corpus, untied), 3)[0];
  std::map<std::string, at::Tensor> got;
  const auto ranks =
      train_on_threads(kRanks, tiny_gpt(folders.corpus, untied + kPipeline + by_file(file)), 3);
  for (const Trained& rank : ranks)
    for (const auto& [name, w] : rank.weights) got.emplace(name, w);
  for (const auto& [name, w] : want.weights)
    EXPECT_TRUE(got.count(name) && got.at(name).equal(w)) << name;
  EXPECT_EQ(ranks[0].losses, want.losses);
  EXPECT_EQ(ranks[1].norms, want.norms);
}

TEST(train_schedule_file, ranks_that_read_different_tables_are_all_told) {
  const Folders folders;
  const std::string a = folders.folder / "a.csv", b = folders.folder / "b.csv";
  write_file_atomic(a, tables_of(named("1f1b"))[0]);
  const auto said = [&] {
    std::vector<std::string> all(kRanks);
    const auto body = [&](Group g) {
      all[static_cast<size_t>(g.rank())] = refusal([&] {
        build_run(tiny_gpt(folders.corpus, kPipeline + by_file(g.rank() == 0 ? a : b)), g);
      });
    };
    run_threads(kRanks, body, std::chrono::seconds(60));
    return all;
  };
  for (const std::string& text : said())
    EXPECT_EQ(text, "rank 1: parallelism.schedule_file (--set): there is no file " + b);
  write_file_atomic(b, tables_of(named("gpipe"))[0]);
  for (const std::string& text : said())
    EXPECT_TRUE(has(text, "has another table where rank 1 is than where rank 0 is")) << text;
  write_file_atomic(b, tables_of(named("1f1b"))[0] + "\n\n");
  for (const std::string& text : said()) EXPECT_EQ(text, "") << "the same actions";
}

TEST(train_schedule_file, a_program_is_told_of_a_table_that_it_cannot_have) {
  const PrivateFolder folder;
  const std::string file = folder / "table.csv";
  const auto said = [&] { return refusal<DeepProgram>(kPipeline + by_file(file), kRanks); };
  EXPECT_TRUE(has(said(), "parallelism.schedule_file (--set): there is no file " + file)) << said();
  write_file_atomic(file, "0F0,0B0\n1F0,1B0\n");
  EXPECT_TRUE(
      has(said(), "are the micro-batches: " + file + " is for 1 micro-batches, and a step has 8"))
      << said();
}

TEST(train_schedule_file, the_start_line_names_it) {
  const Folders folders;
  const std::string file = folders.folder / "table.csv";
  write_file_atomic(file, tables_of(named("1f1b"))[0]);
  run_threads(kRanks, [&](Group g) {
    const trireme::Run run = build_run(tiny_gpt(folders.corpus, kPipeline + by_file(file)), g);
    EXPECT_EQ(std::count(run.setup.begin(), run.setup.end(),
                         "a pipeline of 2 ranks by the table " + file),
              1);
  });
}

}  // namespace schedule_file_test
