// SPDX-License-Identifier: Apache-2.0
#include "trireme/train/build/tune_buckets.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "tests/support/paths.h"
#include "tests/support/processes.h"
#include "tests/support/refusals.h"
#include "tests/train/small_runs.h"

namespace tune_buckets_test {

using namespace trireme;
using namespace trireme::testing;

namespace {

const std::string kFixture = trireme::testing::source_path() + "/tests/formats/buckets-v1.json";

std::string fault(const std::string& text) {
  try {
    buckets_of_text(text, "t.json");
  } catch (const Error& e) {
    return std::string(e.kind()) + ": " + e.what();
  }
  return "";
}

std::string with(std::string text, const std::string& a, const std::string& b) {
  text.replace(text.find(a), a.size(), b);
  return text;
}

}  // namespace

TEST(train_tune_buckets, a_file_of_version_1_is_read_and_written_as_it_was) {
  const std::string text = read_file(kFixture);
  const BucketsFile file = buckets_of_text(text, kFixture);
  EXPECT_EQ(file.setting,
            (BucketSetting{1 << 20, BucketOrder::registration, BucketAlgorithm::scatter_gather}));
  EXPECT_EQ(file.ms_after, 11.25);
  EXPECT_EQ(to_text(file), text);
}

TEST(train_tune_buckets, what_is_no_such_file_is_named) {
  const std::string text = read_file(kFixture);
  EXPECT_TRUE(has(fault("{"), "Corrupt: t.json"));
  EXPECT_TRUE(has(fault("[]"), "not a file of tuned buckets"));
  EXPECT_TRUE(has(fault(with(text, "trireme.buckets", "other")), "its magic is wrong"));
  EXPECT_TRUE(has(fault(with(text, "\"version\": 1", "\"version\": 7")), "version 7"));
  EXPECT_TRUE(has(fault(with(text, "registration", "backwards")), "order is 'backwards'"));
  EXPECT_TRUE(has(fault(with(text, "1048576", "-1")), "bucket_bytes"));
  EXPECT_TRUE(has(fault(with(text, "12.5", "\"x\"")), "no time of a step"));
}

TEST(train_tune_buckets, what_was_found_is_written_and_the_next_run_takes_it) {
  const PrivateFolder folder;
  const std::string file = folder / "tuning.json", corpus = write_corpus(folder);
  const Sets sets{"comm.tune_buckets=true", "comm.buckets_file=" + file, "training.steps=1000",
                  "comm.tuning_budget=1"};
  run_threads(2, [&](Group g) {
    trireme::Run run = build_run(tiny_gpt(corpus, sets), g);
    start_data(run, tiny_gpt(corpus, sets));
    std::string said;
    for (int s = 0; s < 600 && said.empty(); ++s) {
      train_step(run);
      said = run.find<TuneBuckets>()->news();
    }
    check<Error>(has(said, "tuned: "), "'{}'", said);
    check<Error>(run.find<TuneBuckets>()->news().empty(), "told once");
  });
  const BucketsFile found = buckets_of_text(read_file(file), file);
  run_threads(2, [&](Group g) {
    const Config config = tiny_gpt(corpus, {"comm.buckets_file=" + file});
    trireme::Run run = build_run(config, g);
    start_data(run, config);
    check<Error>(has(run.find<TuneBuckets>()->describe(0), "as tuned: " + describe(found.setting)),
                 "{}", run.find<TuneBuckets>()->describe(0));
    train_step(run);
    train_step(run);
    check<Error>(run.find<TuneBuckets>()->news().empty(), "nothing is tried");
  });
}

TEST(train_tune_buckets,
     a_file_of_another_run_is_refused_on_every_rank_unless_it_is_to_be_made_anew) {
  const PrivateFolder folder;
  const std::string file = folder / "tuning.json", corpus = write_corpus(folder);
  auto build = [&](Sets sets) {
    sets.push_back("comm.buckets_file=" + file);
    return refusal([&] { run_threads(2, [&](Group g) { build_run(tiny_gpt(corpus, sets), g); }); });
  };
  EXPECT_TRUE(has(build({}), "is not there: set comm.tune_buckets"));
  write_file_atomic(file, read_file(kFixture));
  EXPECT_TRUE(has(build({}), "is for 2 ranks on local, 75 parameters"));
  EXPECT_EQ(build({"comm.tune_buckets=true"}), "");
}

TEST(train_tune_buckets, weights_are_those_of_a_run_that_is_not_tuned) {
  const PrivateFolder folder;
  const std::string corpus = write_corpus(folder);
  const auto plain = train_on_threads(2, tiny_gpt(corpus), 60);
  const auto tuned = train_on_threads(2, tiny_gpt(corpus, {"comm.tune_buckets=true"}), 60);
  EXPECT_EQ(first_difference(tuned[0].weights, plain[0].weights), "");
  EXPECT_EQ(first_difference(tuned[1].weights, plain[0].weights), "");
}

}  // namespace tune_buckets_test
