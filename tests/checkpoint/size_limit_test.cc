// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <signal.h>

#include <filesystem>
#include <string>
#include <vector>

#include "tests/checkpoint/test_state.h"
#include "tests/support/file_log.h"
#include "tests/support/file_size_limit.h"
#include "tests/support/ranks.h"
#include "trireme/base/error.h"
#include "trireme/base/file.h"
#include "trireme/checkpoint/async_saver.h"
#include "trireme/checkpoint/sharded_writer.h"
#include "trireme/checkpoint/steps/run_folder/folders.h"
#include "trireme/comm/start/run.h"

// A save under a `ulimit -f` that a file of it does not fit into.
namespace size_limit_test {

using namespace trireme;
using namespace trireme::test;
using trireme::testing::end_of_child;
using trireme::testing::FileSizeLimit;

namespace {

constexpr int64_t kNumbers = 100'000;  // of each rank
constexpr rlim_t kLimit = 100'000;     // bytes, a quarter of what they need

/// A tensor of which each of `ranks` has a part.
struct LargeState {
  LargeState(int64_t rank, int64_t ranks, double mark)
      : slice(Slice::range("optim.m", {ranks * kNumbers}, rank * kNumbers, kNumbers)),
        tensor(at::full({kNumbers}, mark, at::kFloat)) {}
  void operator()(StateVisitor& v) { v.tensor(slice, tensor); }
  Slice slice;
  at::Tensor tensor;
};

void expect_refusal(const std::string& text, const std::string& run) {
  EXPECT_TRUE(text.starts_with("ResourceError: checkpoint of step 200 was not saved")) << text;
  EXPECT_TRUE(contains(text, "cannot write " + run + "/.tmp-step-00000200") &&
              contains(text, ".safetensors: it would have ") &&
              contains(text, " bytes, and the limit on file sizes is 100000 (ulimit -f)"))
      << text;
}

void expect_the_last_step_alone(const std::string& run) {
  EXPECT_EQ(list_steps(run), std::vector<int64_t>{100});
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(run), {}), 2);  // and `latest`
  LargeState loaded(0, 1, -1);
  loaded.slice = Slice::whole("optim.m", {loaded.tensor.numel()});
  EXPECT_EQ(load_step(run, std::ref(loaded)).step, 100);
  EXPECT_TRUE(loaded.tensor.eq(100).all().item<bool>());
}

TEST(checkpoint_size_limit, a_snapshot_that_would_be_too_large_is_refused_and_the_last_step_loads) {
  PrivateFolder run;
  LargeState first(0, 1, 100), second(0, 1, 200);
  save_step(run.path(), 100, std::ref(first));
  const std::string text = end_of_child("", [&] {
    run_threads(1, [&](Group g) {
      AsyncSaver saver(run.path(), g);
      const FileSizeLimit limit(kLimit);
      saver.save(200, std::ref(second), {.layout = "replicated"});
    });
  });
  EXPECT_TRUE(contains(text, "cannot write a snapshot in memory: it would have ") &&
              contains(text, "the limit on file sizes is 100000 (ulimit -f)"))
      << text;
  expect_the_last_step_alone(run.path());
}

TEST(checkpoint_size_limit, a_file_that_would_be_too_large_is_refused_and_the_last_step_loads) {
  PrivateFolder run;
  LargeState first(0, 1, 100), second(0, 1, 200);
  save_step(run.path(), 100, std::ref(first));
  expect_refusal(end_of_child("",
                              [&] {
                                const FileSizeLimit limit(kLimit);
                                save_step(run.path(), 200, std::ref(second));
                              }),
                 run.path());
  expect_the_last_step_alone(run.path());
}

TEST(checkpoint_size_limit, all_ranks_of_a_sharded_save_hear_of_it_and_the_last_step_loads) {
  PrivateFolder run;
  const auto save = [&](int64_t step, Group g) {
    LargeState state(g.rank(), g.size(), static_cast<double>(step));
    save_sharded_step(run.path(), step, std::ref(state), g, {.layout = "halves"});
  };
  run_threads(1, [&](Group g) { save(100, g); });
  // Of a thread for each rank: the limit is the process's.
  const std::string text = end_of_child("", [&] {
    const FileSizeLimit limit(kLimit);
    std::vector<std::string> texts(2);
    run_threads(2, [&](Group g) {
      texts[static_cast<size_t>(g.rank())] = trireme::testing::outcome_of([&] { save(200, g); });
      g.barrier();
    });
    if (texts[0] != texts[1]) fail<Error>("rank 0: {}; rank 1: {}", texts[0], texts[1]);
    fail<Error>("{}", texts[0]);
  });
  ASSERT_TRUE(text.starts_with("Error: ")) << text;
  expect_refusal(text.substr(7), run.path());
  expect_the_last_step_alone(run.path());
}

TEST(checkpoint_size_limit, what_becomes_of_the_signal_stays_the_programs_to_say) {
  PrivateFolder run;
  LargeState state(0, 1, 200);
  EXPECT_EQ(end_of_child("",
                         [&] {
                           const FileSizeLimit limit(kLimit);
                           EXPECT_THROW(save_step(run.path(), 200, std::ref(state)), ResourceError);
                           struct sigaction now {};
                           ::sigaction(SIGXFSZ, nullptr, &now);
                           check<Error>(now.sa_handler == SIG_DFL, "it was changed");
                         }),
            "");
}

}  // namespace
}  // namespace size_limit_test
