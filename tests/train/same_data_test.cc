// SPDX-License-Identifier: Apache-2.0
// Ranks whose files are not the same, as on hosts with folders of their own.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "tests/support/refusals.h"
#include "tests/train/run_folders.h"
#include "tests/train/small_runs.h"
#include "trireme/base/error.h"
#include "trireme/train/trainer.h"

namespace trireme::testing::same_data_test {
namespace {

/// What each of three ranks says of whom rank 1 alone reads `other`.
std::vector<std::string> said(const Folders& f, const std::string& other, const Sets& sets = {}) {
  std::vector<std::string> all(3);
  run_threads(
      3,
      [&](Group g) {
        TrainOptions options;
        options.run_dir = f.run("run");
        Sets all_sets{"train_batch_size=18", "training.steps=1"};
        all_sets.insert(all_sets.end(), sets.begin(), sets.end());
        const Config config = tiny_gpt(g.rank() == 1 ? other : f.corpus, all_sets);
        try {
          train(config, g, options);
          all[static_cast<size_t>(g.rank())] = "it trained";
        } catch (const Error& e) {
          all[static_cast<size_t>(g.rank())] = std::string(e.kind()) + ": " + e.what();
        }
      },
      std::chrono::seconds(60));
  EXPECT_FALSE(std::filesystem::exists(f.run("run") + "/metrics.jsonl")) << "a step was made";
  return all;
}

void expect_each(const std::vector<std::string>& all, const std::string& part) {
  for (size_t r = 0; r < all.size(); ++r) EXPECT_TRUE(has(all[r], part)) << r << ": " << all[r];
}

}  // namespace

TEST(train_same_data, files_of_equal_lengths_with_other_contents_are_found_before_the_first_step) {
  Folders f;
  PrivateFolder folder;
  std::string text = read_file(f.corpus);
  std::replace(text.begin(), text.end(), 'o', 'u');
  write_file_atomic(folder / "text.txt", text);
  for (const char* stage : {"0", "3"})
    expect_each(said(f, folder / "text.txt", {std::string("zero_optimization.stage=") + stage}),
                "UsageError: rank 1 opens other data than rank 0: the files have the same names");
}

TEST(train_same_data, a_file_of_another_length_is_found_before_the_first_step) {
  Folders f;
  PrivateFolder folder;
  write_file_atomic(folder / "text.txt", read_file(f.corpus) + "more");
  expect_each(said(f, folder / "text.txt"), "UsageError: rank 1 opens other data than rank 0 (");
}

TEST(train_same_data, a_file_that_one_rank_does_not_have_is_everybodys_error) {
  Folders f;
  const auto all = said(f, "/nothing/is/here.txt");
  expect_each(all, "/nothing/is/here.txt");
  EXPECT_TRUE(has(all[0], "rank 1: ")) << all[0];
  EXPECT_FALSE(has(all[1], "rank 1: ")) << all[1];
}

}  // namespace trireme::testing::same_data_test
