// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>

#include "tests/checkpoint/file_faults.h"
#include "tests/checkpoint/split_state.h"
#include "tests/support/ranks.h"
#include "trireme/checkpoint/async_saver.h"
#include "trireme/checkpoint/steps/run_folder/folders.h"
#include "trireme/comm/local_backend.h"

// Two ranks that save together, where both end, or one, or one's disk fails, at each of their file
// calls. A sample of the calls; all of them with TRIREME_SOAK=1 (scripts/soak --files).
namespace file_faults_ranks_test {

using namespace trireme;
using namespace trireme::test;
using namespace trireme::testing;

namespace {

constexpr Seat kSeat{0, 2, 2, 3};

using checkpoint_file_faults_ranks = OnMemoryDisk;

enum class Way { waits, async };
constexpr Way kWays[] = {Way::waits, Way::async};

void save_in(Way way, const std::string& run, Group& group) {
  const Seat seat = seat_of(group, kSeat.shards);
  if (way == Way::waits) {
    save_split(run, 200, group, seat, 1);
    return;
  }
  SplitState state(seat, 200);
  AsyncSaver saver(run, group);
  saver.save(200, std::ref(state), {.layout = seat.layout(), .keep = 1});
  saver.wait();
}

/// Two processes in a group of their own (the caller has no other threads), which save step 200
/// under a plan of file faults: what each threw, "killed", or "".
Outcomes save_by_processes(Way way, const std::string& run, const std::string& faults) {
  constexpr Duration kLimit = std::chrono::seconds(30);
  PrivateFolder meeting, said;
  std::vector<pid_t> pids;
  for (int r = 0; r < kSeat.world; ++r) {
    const pid_t pid = ::fork();
    check<Error>(pid >= 0, "fork: {}", errno_text());
    if (pid == 0) {
      ::setpgid(0, pids.empty() ? 0 : pids.front());
      ::alarm(60);
      ThreadRankScope label(r);
      const std::string outcome = outcome_of([&] {
        Group group(trireme::detail::local_backend(
            local::process_host(r, kSeat.world, folder_exchange(meeting.path()),
                                Deadline::after(kLimit)),
            kLimit));
        set_file_faults(faults);
        const std::string inner = outcome_of([&] { save_in(way, run, group); });
        set_file_faults("");
        if (!inner.empty()) group.abort(inner);
        spill(said / std::to_string(r), inner);
      });
      ::_exit(outcome.empty() ? 0 : 1);
    }
    ::setpgid(pid, pids.empty() ? pid : pids.front());  // whoever of the two comes first
    pids.push_back(pid);
  }
  Outcomes outcomes;
  for (int r = 0; r < kSeat.world; ++r) {
    int status = 0;
    EXPECT_EQ(::waitpid(pids[static_cast<size_t>(r)], &status, 0), pids[static_cast<size_t>(r)]);
    outcomes.push_back(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL
                           ? "killed"
                           : fmt::format("{}{}", status ? fmt::format("status {} ", status) : "",
                                         slurp(said / std::to_string(r))));
  }
  return outcomes;
}

std::vector<LoggedCall> counted(Way way, int rank) {
  PrivateFolder run, logs;
  save_split(run.path(), 100, kSeat, 1);
  EXPECT_EQ(
      save_by_processes(way, run.path(),
                        fmt::format("rank={},only={},count={}", rank, run.path(), logs / "log")),
      (Outcomes{"", ""}));
  return read_file_log(logs / "log");
}

/// Every step that shows is whole; the old one or the new one resumes, on every rank; the next save
/// succeeds and leaves no temporaries.
void expect_sound_split(const std::string& run, const std::string& where) {
  try {
    const auto steps = list_steps(run);
    EXPECT_FALSE(steps.empty()) << where;
    for (int64_t step : steps) {
      EXPECT_TRUE(step == 100 || step == 200) << where;
      verify_checkpoint(run + "/" + step_folder_name(step));
    }
    EXPECT_TRUE(all_load(run, kSeat)) << where;
    save_split(run, 200, kSeat, 1);
    EXPECT_EQ(names_in(run), (std::vector<std::string>{"latest", "step-00000200"})) << where;
    EXPECT_TRUE(all_load(run, kSeat)) << where;
  } catch (const std::exception& e) {
    ADD_FAILURE() << where << ": " << e.what();
  }
}

std::string label(int rank, const LoggedCall& call, const std::string& what) {
  return fmt::format("{} on rank {} at call {}, {} {} {}", what, rank, call.number, call.kind,
                     call.path, call.to);
}

}  // namespace

class checkpoint_file_faults_ranks_each : public checkpoint_file_faults_ranks,
                                          public ::testing::WithParamInterface<Way> {};

INSTANTIATE_TEST_SUITE_P(both, checkpoint_file_faults_ranks_each, ::testing::ValuesIn(kWays),
                         [](const auto& info) {
                           return info.param == Way::waits ? "of_saves_that_wait"
                                                           : "of_asynchronous_saves";
                         });

TEST_P(checkpoint_file_faults_ranks_each,
       where_one_rank_or_all_end_the_old_step_or_the_new_is_whole) {
  for (int rank = 0; rank < kSeat.world; ++rank) {
    const auto calls = counted(GetParam(), rank);
    ASSERT_GE(calls.size(), 4u);
    size_t salt = 0;
    for (const char* fault : {"kill-before", "kill-after", "kill-group-before", "kill-group-after"})
      for (size_t n : sample(calls.size(), 4, salt++)) {
        PrivateFolder run;
        save_split(run.path(), 100, kSeat, 1);
        const std::string where = label(rank, calls[n - 1], fault);
        const Outcomes ends =
            save_by_processes(GetParam(), run.path(),
                              fmt::format("rank={},only={},{}:{}", rank, run.path(), n, fault));
        const std::string &own = ends[static_cast<size_t>(rank)],
                          &other = ends[static_cast<size_t>(1 - rank)];
        // How often rank 0's thread looks for the other's files is a matter of time.
        const bool looks = GetParam() == Way::async && rank == 0;
        EXPECT_TRUE(own == "killed" || (looks && own.empty())) << where << ": " << own;
        // The other may have come to its end before.
        EXPECT_TRUE(other.empty() || other == "killed" || other.starts_with("PeerLost: "))
            << where << ": " << other;
        expect_sound_split(run.path(), where);
      }
  }
}

namespace {

/// A save of which a call of one rank fails as `fault` says: both ranks tell it alike, with a path
/// and the reason, or there was no harm. With "" for a reason it must be so. True: it was told.
bool expect_told_alike(Way way, int rank, const LoggedCall& call, const std::string& fault,
                       const std::string& reason) {
  PrivateFolder run;
  save_split(run.path(), 100, kSeat, 1);
  const std::string where = label(rank, call, fault);
  const Outcomes said = save_by_processes(
      way, run.path(), fmt::format("rank={},only={},{}", rank, run.path(), fault));
  EXPECT_EQ(said[0], said[1]) << where;
  EXPECT_TRUE(said[0].empty() || (!reason.empty() && names_a_path_and(said[0], run.path(), reason)))
      << where << ": " << said[0];
  if (said[0].empty()) {
    EXPECT_EQ(list_steps(run.path()).back(), 200) << where;
  }
  expect_sound_split(run.path(), where);
  return !said[0].empty();
}

}  // namespace

TEST_P(checkpoint_file_faults_ranks_each,
       what_fails_on_one_rank_is_told_alike_by_all_or_does_no_harm) {
  for (int rank = 0; rank < kSeat.world; ++rank) {
    const auto calls = counted(GetParam(), rank);
    size_t salt = 0;
    for (const auto& [fault, reason] : {std::pair{"EIO", "Input/output error"},
                                        {"ENOSPC", "No space left on device"},
                                        {"EROFS", "Read-only file system"}})
      for (const char* sign : {":", "+:"})
        for (size_t n : sample(calls.size(), 4, salt++))
          expect_told_alike(GetParam(), rank, calls[n - 1], std::to_string(n) + sign + fault,
                            reason);
  }
}

TEST_P(checkpoint_file_faults_ranks_each,
       any_sync_of_one_rank_that_fails_is_told_alike_by_all_or_does_no_harm) {
  for (int rank = 0; rank < kSeat.world; ++rank) {
    size_t told = 0;
    for (const LoggedCall& call : counted(GetParam(), rank))
      if (call.syncs())
        told += expect_told_alike(GetParam(), rank, call,
                                  fmt::format("{}:fsync-fails", call.number), "Input/output error");
    EXPECT_GT(told, 0u) << rank;
  }
}

TEST_P(checkpoint_file_faults_ranks_each, short_writes_and_reads_of_one_rank_are_continued) {
  for (int rank = 0; rank < kSeat.world; ++rank) {
    size_t moves = 0;
    for (const LoggedCall& call : counted(GetParam(), rank)) {
      if (!call.moves_bytes()) continue;
      ++moves;
      expect_told_alike(GetParam(), rank, call, fmt::format("{}:short", call.number), "");
    }
    EXPECT_GT(moves, 1u) << rank;
  }
}

TEST_P(checkpoint_file_faults_ranks_each, after_a_power_cut_the_old_step_or_the_new_is_whole) {
  PrivateFolder run, logs, cuts;
  save_split(run.path(), 100, kSeat, 1);
  RecordedDisk disk(run.path(), logs / "record");
  ASSERT_EQ(save_by_processes(GetParam(), run.path(),
                              fmt::format("only={},record={}", run.path(), logs / "record")),
            (Outcomes{"", ""}));
  disk.read();
  std::vector<size_t> counts = sample(disk.calls.size(), 8, 0);
  counts.push_back(disk.calls.size());
  for (size_t n : counts)
    for (unsigned variant = 0; variant < 4; ++variant) {
      const std::string cut = cuts / fmt::format("{}-{}", n, variant);
      rebuild(disk.after(n), cut, variant);
      const std::string where = label(disk.calls[n - 1].rank, disk.calls[n - 1], "a cut");
      if (n == disk.calls.size()) {
        EXPECT_TRUE(loads(cut + "/step-00000200", kSeat)) << "what was saved is lost";
      }
      expect_sound_split(cut, where);
    }
}

}  // namespace file_faults_ranks_test
