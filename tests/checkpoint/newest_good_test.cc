// SPDX-License-Identifier: Apache-2.0
#include "trireme/checkpoint/steps/run_folder/newest_good.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <set>

#include "tests/checkpoint/test_state.h"
#include "tests/support/file_log.h"
#include "trireme/base/error.h"
#include "trireme/base/file.h"
#include "trireme/checkpoint/steps/run_folder/folders.h"
#include "trireme/checkpoint/steps/run_folder/run_folder.h"

namespace newest_good_test {

using namespace trireme;
using namespace trireme::test;
using namespace trireme::testing;
namespace fs = std::filesystem;

namespace {

using Names = std::set<std::string>;

class checkpoint_newest_good : public ::testing::Test {
 protected:
  void save(std::initializer_list<int64_t> steps) {
    for (int64_t step : steps) {
      TestState state(static_cast<double>(step));
      save_step(run_.path(), step, std::ref(state), {.keep = 99});
    }
  }
  std::string at(int64_t step) const { return run_ / step_folder_name(step); }
  void truncate(int64_t step) {
    fs::resize_file(at(step) + "/model.safetensors",
                    fs::file_size(at(step) + "/model.safetensors") / 2);
  }
  void flip_a_bit(int64_t step) {
    const std::string path = at(step) + "/state.safetensors";
    std::string bytes = read_file(path);
    bytes.back() = static_cast<char>(bytes.back() ^ 1);
    std::ofstream(path, std::ios::binary) << bytes;
  }
  std::string latest() const { return read_file(run_ / "latest"); }
  Names names() const {
    Names found;
    for (const auto& entry : fs::directory_iterator(run_.path()))
      found.insert(entry.path().filename());
    return found;
  }
  std::string refusal() const {
    try {
      newest_good_step(run_.path());
    } catch (const Corrupt& e) {
      return e.what();
    }
    return "none";
  }

  PrivateFolder run_;
};

}  // namespace

TEST_F(checkpoint_newest_good, no_folder_and_an_empty_one_hold_no_step) {
  EXPECT_EQ(newest_good_step(run_ / "none"), "");
  EXPECT_FALSE(fs::exists(run_ / "none"));
  EXPECT_EQ(newest_good_step(run_.path()), "");
}

TEST_F(checkpoint_newest_good, the_newest_is_taken_and_nothing_changes) {
  save({3, 6, 9});
  const Names before = names();
  EXPECT_EQ(newest_good_step(run_.path()), at(9));
  EXPECT_EQ(names(), before);
}

TEST_F(checkpoint_newest_good, damaged_steps_are_set_aside_and_latest_names_the_one_that_is_taken) {
  save({3, 6, 9, 12});
  truncate(12);
  flip_a_bit(9);
  EXPECT_EQ(newest_good_step(run_.path()), at(6));
  EXPECT_EQ(names(), (Names{"step-00000003", "step-00000006", "damaged-step-00000009",
                            "damaged-step-00000012", "latest"}));
  EXPECT_EQ(latest(), "step-00000006\n");
  EXPECT_EQ(find_checkpoint(run_.path()), at(6));
  EXPECT_GT(fs::file_size(run_ / "damaged-step-00000012/state.safetensors"), 0u);
  EXPECT_EQ(list_steps(run_.path()), (std::vector<int64_t>{3, 6})) << "they count as none";
}

TEST_F(checkpoint_newest_good, a_step_that_is_damaged_twice_gets_a_second_name) {
  for (int i = 0; i < 3; ++i) {
    save({3, 6});
    truncate(6);
    EXPECT_EQ(newest_good_step(run_.path()), at(3));
  }
  EXPECT_EQ(names(), (Names{"step-00000003", "damaged-step-00000006", "damaged-step-00000006-2",
                            "damaged-step-00000006-3", "latest"}));
}

TEST_F(checkpoint_newest_good, a_step_without_its_index_is_damaged) {
  save({3, 6});
  fs::remove(at(6) + "/trireme.index.json");
  EXPECT_EQ(newest_good_step(run_.path()), at(3));
  EXPECT_TRUE(fs::exists(run_ / "damaged-step-00000006"));
}

TEST_F(checkpoint_newest_good, what_only_looks_like_a_step_is_left_alone) {
  const Names junk = {"100", "step-00000200", "step-7", "step-00000300", "checkpoint-12", "step"};
  for (const auto& name : junk) fs::create_directory(run_ / name);
  std::ofstream(run_ / "step-00000300/notes.txt") << "mine";
  std::ofstream(run_ / "step-00000400") << "a file";
  EXPECT_EQ(newest_good_step(run_.path()), "");
  save({3});
  EXPECT_EQ(newest_good_step(run_.path()), at(3));
  for (const auto& name : junk) EXPECT_TRUE(fs::is_directory(run_ / name)) << name;
  EXPECT_TRUE(fs::is_regular_file(run_ / "step-00000400"));
}

TEST_F(checkpoint_newest_good, a_latest_that_names_nothing_is_written_anew) {
  for (const char* text : {"", "step-00000099\n", "../step-00000003\n", "\n\n", "garbage"}) {
    save({3, 6});
    std::ofstream(run_ / "latest") << text;
    EXPECT_EQ(newest_good_step(run_.path()), at(6)) << text;
    EXPECT_EQ(latest(), "step-00000006\n") << text;
  }
}

// A run that was resumed from step 3 and has saved 4 does not jump to the run that it replaces.
TEST_F(checkpoint_newest_good, steps_behind_latest_are_of_a_run_that_was_replaced) {
  save({3, 6, 4});
  EXPECT_EQ(newest_good_step(run_.path()), at(4));
  truncate(4);
  EXPECT_EQ(newest_good_step(run_.path()), at(3));
}

TEST_F(checkpoint_newest_good, only_damaged_steps_are_refused_now_and_at_the_next_start) {
  save({3, 6});
  truncate(3);
  truncate(6);
  const std::string first = refusal();
  EXPECT_NE(first.find("every checkpoint in " + run_.path()), std::string::npos) << first;
  EXPECT_EQ(names(), (Names{"damaged-step-00000003", "damaged-step-00000006"}));
  EXPECT_EQ(refusal(), first);
  fs::rename(run_ / "damaged-step-00000003", at(3));  // as the sentence says, without a repair
  EXPECT_EQ(refusal(), first);
}

TEST_F(checkpoint_newest_good, steps_that_are_gone_are_missed_and_a_new_folder_is_not) {
  EXPECT_EQ(newest_good_step(run_.path()), "");
  save({3});
  fs::remove_all(at(3));
  EXPECT_TRUE(
      contains(refusal(), "latest names step-00000003, and there is no step in that folder"))
      << refusal();
  fs::remove(run_ / "latest");
  EXPECT_EQ(newest_good_step(run_.path()), "");
}

TEST_F(checkpoint_newest_good, what_latest_names_is_not_guessed_when_the_disk_does_not_say) {
  save({3, 6});
  write_file_atomic(run_ / "latest", "step-00000003\n");
  const FileFaults disk("only=" + (run_ / "latest") + ",read:EIO");
  EXPECT_THROW(newest_good_step(run_.path()), ResourceError);
}

TEST_F(checkpoint_newest_good, a_newer_format_is_no_damage) {
  save({3, 6});
  std::string index = read_file(at(6) + "/trireme.index.json");
  const auto version = index.find("\"version\": ") + 11;
  index.replace(version, 1, "9");
  std::ofstream(at(6) + "/trireme.index.json", std::ios::binary) << index;
  EXPECT_THROW(newest_good_step(run_.path()), UsageError);
  EXPECT_TRUE(fs::exists(at(6)));
}

TEST_F(checkpoint_newest_good, a_disk_that_fails_is_no_damage_and_nothing_is_renamed) {
  save({3, 6});
  const Names before = names();
  for (const char* faults : {"pread:EIO", "read:EIO", "open:EIO", "stat:EIO"}) {
    const FileFaults disk("only=" + at(6) + "," + faults);
    std::string text;
    try {
      newest_good_step(run_.path());
    } catch (const ResourceError& e) {
      text = e.what();
    }
    EXPECT_NE(text.find(at(6)), std::string::npos) << faults << ": " << text;
    EXPECT_NE(text.find("Input/output error"), std::string::npos) << faults << ": " << text;
    EXPECT_NE(text.find("nothing was renamed"), std::string::npos) << faults << ": " << text;
    EXPECT_NE(text.find("with --resume " + at(3)), std::string::npos) << faults << ": " << text;
    EXPECT_EQ(names(), before) << faults;
  }
  EXPECT_EQ(newest_good_step(run_.path()), at(6));
}

TEST_F(checkpoint_newest_good, a_read_that_fails_once_is_made_again) {
  save({3, 6});
  size_t reads = 0;
  for (const LoggedCall& call : calls_of(at(6), [&] { newest_good_step(run_.path()); })) {
    if (!call.kind.ends_with("read")) continue;
    ++reads;
    const FileFaults disk(fmt::format("only={},{}:EIO", at(6), call.number));
    EXPECT_EQ(newest_good_step(run_.path()), at(6)) << call.path;
  }
  EXPECT_GT(reads, 4u);
  EXPECT_EQ(list_steps(run_.path()), (std::vector<int64_t>{3, 6}));
}

TEST_F(checkpoint_newest_good, damaged_steps_are_not_counted_when_steps_are_deleted) {
  save({3, 6, 9});
  truncate(9);
  ASSERT_EQ(newest_good_step(run_.path()), at(6));
  TestState state(8);
  save_step(run_.path(), 8, std::ref(state), {.keep = 2});
  EXPECT_EQ(names(), (Names{"step-00000006", "step-00000008", "damaged-step-00000009", "latest"}));
}

TEST_F(checkpoint_newest_good, a_number_of_a_step_is_read_from_its_index) {
  save({3});
  EXPECT_EQ(number_in_step(at(3), "train.loss"), 1.0);
  EXPECT_EQ(number_in_step(at(3), "train.step"), std::nullopt) << "an integer";
  EXPECT_EQ(number_in_step(at(3), "train.other"), std::nullopt);
  EXPECT_EQ(number_in_step(at(4), "train.loss"), std::nullopt);
  std::ofstream(at(3) + "/trireme.index.json") << "{";
  EXPECT_EQ(number_in_step(at(3), "train.loss"), std::nullopt);
}

TEST_F(checkpoint_newest_good, pruning_keeps_the_best_and_every_nth_and_what_latest_names) {
  save({2, 4, 6, 8, 10});
  const std::vector<SavedStep> steps = {{2, 5.0}, {4, 1.0}, {6, {}}, {8, 9.0}, {10, 2.0}};
  prune_steps(run_.path(), steps, 10, {.keep = 1, .best = 1, .every = 3});
  EXPECT_EQ(list_steps(run_.path()), (std::vector<int64_t>{4, 6, 10}));
  EXPECT_EQ(find_checkpoint(run_.path()), at(10));
}

}  // namespace newest_good_test
