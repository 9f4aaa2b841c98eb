// SPDX-License-Identifier: Apache-2.0
// Loads of steps with more files than a process may open, and of steps that go meanwhile.
#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <filesystem>

#include "tests/checkpoint/steps/written_step.h"
#include "tests/checkpoint/test_state.h"
#include "tests/support/file_log.h"
#include "trireme/base/error.h"

namespace many_files_test {

using namespace trireme;
using namespace trireme::test;
using trireme::testing::end_of_child;
namespace fs = std::filesystem;

namespace {

constexpr int64_t kRanks = 200, kEach = 16, kAll = kRanks * kEach;

/// Each rank has a file.
std::string write_ranks(const std::string& run, int64_t step, float scale = 1) {
  WrittenTensor w{"model.w", "F32", {kAll}, counted(kAll, scale)};
  for (int64_t r = 0; r < kRanks; ++r) w.boxes.push_back({{r * kEach}, {kEach}});
  return write_test_step(run, step, {w}, {}, kRanks);
}

/// What a load throws in a child that may open 64 files. `meanwhile` is called when the state is
/// shown for that purpose.
std::string load_with_64_files(const std::string& run, StateVisitor::Purpose when = {},
                               const std::function<void()>& meanwhile = {}) {
  return end_of_child("", [&] {
    const rlimit limit{64, 64};
    if (::setrlimit(RLIMIT_NOFILE, &limit) != 0) fail<Error>("setrlimit: {}", errno_text());
    at::Tensor w = at::zeros({kAll});
    load_step(run, [&](StateVisitor& v) {
      if (meanwhile && v.purpose() == when) meanwhile();
      v.tensor("model.w", w);
    });
    check<Error>(w.equal(at::arange(kAll, at::kFloat)), "other values were loaded");
  });
}

}  // namespace

TEST(checkpoint_many_files, a_step_of_200_ranks_loads_where_64_files_may_be_open) {
  PrivateFolder run;
  const std::string folder = write_ranks(run.path(), 1);
  EXPECT_EQ(load_with_64_files(run.path()), "");
  EXPECT_EQ(end_of_child("",
                         [&] {
                           const rlimit limit{64, 64};
                           ::setrlimit(RLIMIT_NOFILE, &limit);
                           verify_checkpoint(folder);
                         }),
            "");
}

// The files that are open then are still those that were verified; 196 are not.
TEST(checkpoint_many_files, files_that_are_replaced_after_they_were_verified_are_not_taken) {
  PrivateFolder run, other;
  const std::string mine = write_ranks(run.path(), 1), theirs = write_ranks(other.path(), 1, 2);
  const std::string text = load_with_64_files(run.path(), StateVisitor::Purpose::load, [&] {
    for (int64_t r = 0; r < kRanks; ++r)
      fs::rename(theirs + "/" + place_of("model.w", r).file,
                 mine + "/" + place_of("model.w", r).file);
  });
  EXPECT_TRUE(text.starts_with("Corrupt: " + mine + "/model-rank") &&
              contains(text, ".safetensors was replaced while it was read"))
      << text;
}

TEST(checkpoint_many_files, a_step_that_is_pruned_while_it_is_loaded_is_said_to_be_deleted) {
  PrivateFolder run;
  const std::string old = write_ranks(run.path(), 1), folder = write_ranks(run.path(), 2),
                    hidden = run / ".tmp-step-00000002-gone";
  for (const auto when : {StateVisitor::Purpose::compare, StateVisitor::Purpose::load}) {
    const std::string text =
        load_with_64_files(run.path(), when, [&] { fs::rename(folder, hidden); });
    EXPECT_TRUE(text.starts_with("Corrupt: " + folder + "/model-rank") &&
                contains(text, ".safetensors was deleted while it was read"))
        << text;
    EXPECT_TRUE(contains(text, ". The newest good checkpoint before it is " + old)) << text;
    EXPECT_EQ(contains(text, "part old and part new"), when == StateVisitor::Purpose::load) << text;
    fs::rename(hidden, folder);
  }
}

}  // namespace many_files_test
