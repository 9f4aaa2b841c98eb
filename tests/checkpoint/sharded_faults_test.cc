// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>

#include <filesystem>

#include "tests/checkpoint/rank_processes.h"
#include "tests/checkpoint/split_state.h"
#include "tests/checkpoint/steps/written_step.h"
#include "tests/support/ranks.h"
#include "trireme/base/error.h"
#include "trireme/base/failpoint.h"
#include "trireme/base/fd.h"
#include "trireme/base/file.h"
#include "trireme/base/file/file_faults.h"
#include "trireme/checkpoint/steps/run_folder/folders.h"

namespace sharded_faults_test {

using namespace trireme;
using namespace trireme::test;
namespace fs = std::filesystem;

namespace {

using Names = std::vector<std::string>;
using Steps = std::vector<int64_t>;

struct Failpoints {
  explicit Failpoints(const std::string& text) { set_failpoints(text); }
  ~Failpoints() { set_failpoints(""); }
};

/// What saving by threads throws on each rank, as "Kind: text"; the group is used once more.
Names outcomes_by_threads(Seat seat, const std::function<void(Group)>& save) {
  Names texts(static_cast<size_t>(seat.world));
  run_threads(seat.world, [&](Group g) {
    texts[static_cast<size_t>(g.rank())] = trireme::testing::outcome_of([&] { save(g); });
    g.barrier();
  });
  return texts;
}

}  // namespace

TEST(checkpoint_sharded_faults, a_full_disk_of_one_rank_is_told_by_all_and_nothing_is_visible) {
  for (int rank : {0, 1, 2})
    for (int visit : {1, 2}) {
      PrivateFolder run;
      const Seat seat{0, 3, 3, 3};
      save_split(run.path(), 100, seat);
      Failpoints armed("checkpoint.write@" + std::to_string(visit) + "#" + std::to_string(rank) +
                       "=error(" + std::to_string(ENOSPC) + ")");
      const Names texts = outcomes_by_threads(seat, [&](Group g) {
        const Seat mine = seat_of(g, 3);
        try {
          save_split(run.path(), 200, g, mine);
        } catch (...) {  // nothing is there when any rank hears of it
          EXPECT_EQ(list_steps(run.path()), (Steps{100}));
          EXPECT_EQ(hidden_files(run.path()), 0u);
          throw;
        }
      });
      for (const std::string& text : texts) {
        EXPECT_EQ(text, texts.front());
        EXPECT_TRUE(contains(text, "ResourceError: checkpoint of step 200 was not saved: rank " +
                                       std::to_string(rank) + " on ") &&
                    contains(text, "cannot write " + run.path()) && contains(text, "needs"))
            << text;
      }
      EXPECT_TRUE(all_load(run.path(), seat));
      set_failpoints("");
      save_split(run.path(), 200, seat, 1);
      EXPECT_EQ(names_in(run.path()), (Names{"latest", "step-00000200"}));
      EXPECT_TRUE(all_load(run.path(), seat));
    }
}

TEST(checkpoint_sharded_faults, space_that_comes_back_is_used_by_the_same_group) {
  PrivateFolder run;
  const Seat seat{0, 2, 2, 3};
  run_threads(2, [&](Group g) {
    if (g.rank() == 0) set_failpoints("checkpoint.write@1#1=error(" + std::to_string(EDQUOT) + ")");
    g.barrier();
    EXPECT_THROW(save_split(run.path(), 1, g, seat_of(g, 2)), ResourceError);
    save_split(run.path(), 1, g, seat_of(g, 2));
  });
  set_failpoints("");
  EXPECT_TRUE(all_load(run.path(), seat));
}

TEST(checkpoint_sharded_faults, a_publish_or_latest_that_fails_is_told_by_all) {
  const Seat seat{0, 2, 2, 3};
  for (const char* where : {"checkpoint.before_publish", "file.write"}) {
    PrivateFolder run;
    save_split(run.path(), 100, seat, 1);
    Failpoints armed(std::string(where) + "=error(" + std::to_string(EIO) + ")");
    const Names texts = outcomes_by_threads(
        seat, [&](Group g) { save_split(run.path(), 200, g, seat_of(g, 2), 1); });
    EXPECT_EQ(texts[0], texts[1]);
    EXPECT_EQ(texts[0].rfind("ResourceError: ", 0), 0u) << texts[0];
    EXPECT_EQ(hidden_files(run.path()), 0u);
    const bool published = std::string(where) == "file.write";
    EXPECT_EQ(list_steps(run.path()), published ? (Steps{100, 200}) : (Steps{100}));
    EXPECT_EQ(slurp(run / "latest"), "step-00000100\n");
    EXPECT_TRUE(all_load(run.path(), seat));
  }
}

TEST(checkpoint_sharded_faults,
     a_disk_that_is_full_at_the_index_is_told_with_the_room_that_is_missing) {
  PrivateFolder run;
  const Seat seat{0, 2, 2, 3};
  save_split(run.path(), 100, seat);
  set_file_faults("only=trireme.index.json,create:ENOSPC");
  const Names texts =
      outcomes_by_threads(seat, [&](Group g) { save_split(run.path(), 200, g, seat_of(g, 2)); });
  set_file_faults("");
  for (const std::string& text : texts)
    EXPECT_TRUE(contains(text, "No space left on device. The checkpoint needs ") &&
                contains(text, " free. Earlier checkpoints are as they were"))
        << text;
  EXPECT_EQ(list_steps(run.path()), (Steps{100}));
  EXPECT_TRUE(all_load(run.path(), seat));
}

TEST(checkpoint_sharded_faults, a_host_that_does_not_share_the_folder_is_named) {
  PrivateFolder run, elsewhere;
  const Seat seat{0, 2, 2, 3};
  const Names texts = outcomes_by_threads(seat, [&](Group g) {
    save_split(g.rank() == 0 ? run.path() : elsewhere.path(), 1, g, seat_of(g, 2));
  });
  EXPECT_EQ(texts[0], texts[1]);
  EXPECT_TRUE(contains(texts[0], "ResourceError") && contains(texts[0], "rank 1 on ") &&
              contains(texts[0], elsewhere.path()) && contains(texts[0], "all hosts share"))
      << texts[0];
  EXPECT_TRUE(names_in(run.path()).empty());
  EXPECT_TRUE(names_in(elsewhere.path()).empty());
}

TEST(checkpoint_sharded_faults, another_saver_or_a_folder_that_cannot_be_made_is_told_by_all) {
  PrivateFolder run;
  const Seat seat{0, 2, 2, 3};
  {
    UniqueFd other(::open(run.path().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    ASSERT_EQ(::flock(other.get(), LOCK_EX), 0);
    for (const auto& text :
         outcomes_by_threads(seat, [&](Group g) { save_split(run.path(), 1, g, seat_of(g, 2)); }))
      EXPECT_TRUE(contains(text, "ResourceError") &&
                  contains(text, "another saver of this process"))
          << text;
  }
  spill(run / "file", "x");
  for (const auto& text : outcomes_by_threads(
           seat, [&](Group g) { save_split(run / "file/run", 1, g, seat_of(g, 2)); }))
    EXPECT_TRUE(contains(text, "ResourceError") && contains(text, "run folder")) << text;
}

TEST(checkpoint_sharded_faults,
     a_rank_that_is_killed_while_saving_is_lost_and_the_one_before_stays_whole) {
  const Seat seat{0, 3, 3, 3};
  for (const char* where : {"checkpoint.write@1#1", "checkpoint.write@3#2", "checkpoint.write@2#0",
                            "checkpoint.before_publish#0"}) {
    PrivateFolder run;
    const std::string text = where;
    const size_t victim = static_cast<size_t>(text.back() - '0');
    const Names outcomes = outcomes_by_processes(3, [&](Group g) {
      save_split(run.path(), 100, g, seat_of(g, 3), 1);
      set_failpoints(text + "=kill");
      save_split(run.path(), 200, g, seat_of(g, 3), 1);
    });
    for (size_t r = 0; r < 3; ++r)
      EXPECT_EQ(outcomes[r].rfind(r == victim ? "signal 9" : "PeerLost: ", 0), 0u)
          << where << ": " << outcomes[r];
    EXPECT_EQ(list_steps(run.path()), (Steps{100})) << where;
    EXPECT_TRUE(all_load(run.path(), seat)) << where;
    save_split(run.path(), 200, seat, 1);
    EXPECT_EQ(names_in(run.path()), (Names{"latest", "step-00000200"})) << where;
    EXPECT_TRUE(all_load(run.path(), seat)) << where;
  }
}

TEST(checkpoint_sharded_faults, killed_after_publishing_both_are_whole) {
  PrivateFolder run;
  const Seat seat{0, 2, 2, 3};
  const Names outcomes = outcomes_by_processes(2, [&](Group g) {
    save_split(run.path(), 100, g, seat_of(g, 2), 1);
    set_failpoints("checkpoint.after_publish#0=kill");
    save_split(run.path(), 200, g, seat_of(g, 2), 1);
  });
  EXPECT_EQ(outcomes[0], "signal 9");
  EXPECT_EQ(outcomes[1].rfind("PeerLost: ", 0), 0u) << outcomes[1];
  EXPECT_EQ(list_steps(run.path()), (Steps{100, 200}));
  EXPECT_TRUE(all_load(run / "step-00000100", seat));
  EXPECT_TRUE(all_load(run / "step-00000200", seat));
  save_split(run.path(), 200, seat, 1);
  EXPECT_EQ(names_in(run.path()), (Names{"latest", "step-00000200"}));
}

TEST(checkpoint_sharded_faults, files_of_two_ranks_that_were_exchanged_are_refused_and_named) {
  PrivateFolder run;
  const auto rows = [](Group g, double first) {
    return [=](StateVisitor& v) {
      at::Tensor mine = at::arange(8, at::kFloat).view({2, 4}) + (8 * g.rank() + first);
      v.tensor({"model.w", {4, 4}, {2 * g.rank(), 0}, {2, 4}}, mine);
    };
  };
  for (const int64_t step : {1, 2})
    run_threads(2, [&](Group g) {
      save_sharded_step(run.path(), step, rows(g, static_cast<double>(step)), g,
                        {.layout = "zero stage 3", .keep = 5});
    });
  const std::string folder = run / "step-00000002", a = folder + "/model-rank00000.safetensors",
                    b = folder + "/model-rank00001.safetensors";
  ASSERT_EQ(fs::file_size(a), fs::file_size(b));
  fs::rename(a, a + ".other");
  fs::rename(b, a);
  fs::rename(a + ".other", b);
  const auto expect_refused = [&](const std::string& text) {
    EXPECT_TRUE(contains(text, a) || contains(text, b)) << text;
    EXPECT_TRUE(contains(text, "the checksum of its header does not fit") &&
                contains(text, "The newest good checkpoint before it is " + run / "step-00000001"))
        << text;
  };
  at::Tensor whole = at::full({4, 4}, -1, at::kFloat);
  expect_refused(message_of<Corrupt>(
      [&] { load_step(run.path(), [&](StateVisitor& v) { v.tensor("model.w", whole); }); }));
  EXPECT_TRUE(whole.eq(-1).all().item<bool>());
  run_threads(2, [&](Group g) {
    at::Tensor mine = at::full({2, 4}, -1, at::kFloat);
    const Slice slice{"model.w", {4, 4}, {2 * g.rank(), 0}, {2, 4}};
    const std::string text = message_of<Corrupt>([&] {
      load_step(run.path(), [&](StateVisitor& v) { v.tensor(slice, mine); }, {.group = g});
    });
    expect_refused(text);
    EXPECT_TRUE(mine.eq(-1).all().item<bool>());
  });
}

TEST(checkpoint_sharded_faults, exchanged_files_with_equal_headers_are_refused_by_their_blocks) {
  PrivateFolder run;
  WrittenTensor w{"model.w", "F32", {8}, counted(8), {{{0}, {4}}, {{4}, {4}}}};
  const std::string folder = write_test_step(run.path(), 1, {w}, {}, 2),
                    a = folder + "/model-rank00000.safetensors",
                    b = folder + "/model-rank00001.safetensors";
  fs::rename(a, a + ".other");
  fs::rename(b, a);
  fs::rename(a + ".other", b);
  at::Tensor whole = at::full({8}, -1, at::kFloat);
  for (const bool check_first : {true, false}) {
    const std::string text = message_of<Corrupt>([&] {
      load_step(run.path(), [&](StateVisitor& v) { v.tensor("model.w", whole); },
                {.check_first = check_first});
    });
    const std::string fault = ": the checksum of tensor 'w' does not fit (bytes 0 to 15 of it)";
    EXPECT_TRUE(contains(text, a + fault) || contains(text, b + fault)) << text;
    EXPECT_TRUE(!check_first || whole.eq(-1).all().item<bool>());
  }
}

}  // namespace sharded_faults_test
