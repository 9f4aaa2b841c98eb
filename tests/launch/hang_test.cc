// SPDX-License-Identifier: Apache-2.0
// Workers that hang, seen by the launcher that started them. They are this program again.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <thread>

#include "tests/launch/job_process.h"
#include "tests/support/fault_times.h"
#include "trireme/base/events/event_ring.h"
#include "trireme/base/events/handover.h"
#include "trireme/base/events/progress_marks.h"
#include "trireme/base/file.h"
#include "trireme/base/process/descriptor_socket.h"
#include "trireme/base/process/flight_variables.h"
#include "trireme/base/process/signals.h"
#include "trireme/rpc/agent/call_board.h"

namespace trireme::launch::hang_test {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr double kSlack = 3;  // promises are in seconds of an idle machine
constexpr const char* kPlay = "TRIREME_TEST_HANG_PLAY";

// ── What a worker does ─────────────────────────────────────────────────────────────────────────

void sleep_for(Duration time) { std::this_thread::sleep_for(time); }

[[noreturn]] void wait_for_ever(const char* call) {
  WaitMark waits;
  waits.begin(call);
  while (true) sleep_for(seconds(1));
}

[[noreturn]] void loop_for_ever() {
  for (std::atomic<uint64_t> i{0};;) i.fetch_add(1, std::memory_order_relaxed);
}

void steps_until(int64_t last, Duration each) {
  for (int64_t n = 1; n <= last; ++n) {
    mark_progress(Activity::step, n);
    sleep_for(each);
  }
}

/// Hands over memory that this worker fills with garbage for ever.
[[noreturn]] void write_garbage() {
  UniqueFd socket = connect_for_descriptors(std::getenv(kEventsVariable));
  const size_t bytes = event_bytes(kEventLanes, kEventsOfLane);
  UniqueFd fd(::memfd_create("garbage", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (::fallocate(fd.get(), 0, 0, static_cast<off_t>(bytes)) != 0) ::_exit(3);
  ::fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
  auto* words = static_cast<uint64_t*>(
      ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0));
  auto* head = reinterpret_cast<EventHead*>(words);
  head->magic = kEventMagic, head->version = 1;
  head->lanes = kEventLanes, head->events = kEventsOfLane;
  EventHandover message;
  message.rank = 0;
  send_descriptor(socket.get(), &message, sizeof message, fd.get());
  sleep_for(milliseconds(300));  // its head is read first
  std::puts("begins");
  std::fflush(stdout);
  uint64_t x = 1;
  while (true) {
    for (size_t i = 0; i < bytes / 8; ++i)
      words[i] = (x = x * 6364136223846793005u + 1) >> (x % 60);
    sleep_for(milliseconds(5));
  }
}

int play(const std::string& name, int rank, int attempt) {
  const bool hangs = rank == 1 && attempt == 0;
  if (name == "loop") {
    steps_until(3, milliseconds(20));
    if (hangs) loop_for_ever();
    if (attempt == 0) wait_for_ever("all_reduce(float32[10], sum) at train.cc:40");
    mark_progress(Activity::done);
  } else if (name == "stop") {
    steps_until(3, milliseconds(20));
    if (hangs) ::raise(SIGSTOP);
    if (attempt == 0) wait_for_ever("barrier() at train.cc:41");
  } else if (name == "unbegun") {  // stopped before it has marked anything
    if (hangs) ::raise(SIGSTOP);
    mark_progress(Activity::build);
    if (attempt == 0) wait_for_ever("the meeting of the ranks on this host, for rank 1");
    mark_progress(Activity::done);
  } else if (name == "always") {  // in every attempt, at the same step
    steps_until(3, milliseconds(20));
    if (rank == 1) loop_for_ever();
    wait_for_ever("barrier()");
  } else if (name == "slower") {
    for (int64_t n = 1, ms = 100; ms < 1500; ++n, ms += ms / 3) {
      mark_progress(Activity::step, n);
      sleep_for(milliseconds(ms));
    }
  } else if (name == "between") {  // more than twice the limit without a word, then with some
    steps_until(3, milliseconds(20));
    mark_progress(rank == 0 ? Activity::evaluate : Activity::save, 3);
    sleep_for(milliseconds(2400));
    for (int i = 0; i < 4; ++i) mark_alive(), sleep_for(milliseconds(500));
    steps_until(3, milliseconds(20));
  } else if (name == "unmarked") {
    sleep_for(milliseconds(1500));
  } else if (name == "done") {
    steps_until(3, milliseconds(20));
    mark_progress(Activity::done);
    sleep_for(milliseconds(1500));
  } else if (name == "deadlock") {
    steps_until(3, milliseconds(20));
    wait_for_ever(rank == 0 ? "send(int64[1], to rank 1)" : "send(int64[1], to rank 0)");
  } else if (name == "busy") {  // rank 0 waits for long, for one that goes on
    steps_until(2, milliseconds(20));
    if (rank == 0) {
      WaitMark waits;
      waits.begin("barrier()");
      sleep_for(milliseconds(1500));
    } else {
      steps_until(15, milliseconds(100));
    }
  } else if (name == "calls") {  // rank 0 waits for an answer, which rank 1 owes it
    rpc::detail::CallBoard board("trainer0", flight_folder_in([](const char* variable) {
                                   const char* const value = std::getenv(variable);
                                   return value ? std::optional<std::string>(value) : std::nullopt;
                                 }));
    const SignalEnrolment enrolment(&board);
    install_signal_handlers();
    steps_until(3, milliseconds(20));
    if (rank == 1) loop_for_ever();
    board.put(rpc::detail::CallDirection::made, "pull", "server0", now_ns());
    wait_for_ever("an answer of worker 'server0'");
  } else if (name == "garbage") {
    if (rank == 0) write_garbage();
    sleep_for(seconds(60));
  } else if (name == "child") {  // a child holds the socket when the worker is gone
    steps_until(3, milliseconds(20));
    if (rank == 0 && ::fork() == 0) {
      sleep_for(milliseconds(1500));
      ::_exit(0);
    }
    mark_progress(rank == 0 ? Activity::step : Activity::done, 4);
    if (rank == 1) sleep_for(milliseconds(1500));
  }
  std::printf("rank %d ends attempt %d\n", rank, attempt);
  std::fflush(stdout);
  return 0;
}

const bool is_worker = [] {
  if (const char* name = std::getenv(kPlay))
    ::_exit(play(name, std::atoi(std::getenv("RANK")),
                 std::atoi(std::getenv("TORCHELASTIC_RESTART_COUNT"))));
  return false;
}();

// ── What is seen ───────────────────────────────────────────────────────────────────────────────

/// Two ranks of this play, with a limit of 0.3 s.
JobProcess job(const std::string& name, std::vector<std::string> flags = {}) {
  flags.insert(flags.begin(), {"--nproc-per-node=2", "--cpu-binding=none"});
  if (std::none_of(flags.begin(), flags.end(),
                   [](const auto& f) { return f.rfind("--hang-timeout", 0) == 0; }))
    flags.push_back("--hang-timeout=0.3");
  const std::string self = std::filesystem::read_symlink("/proc/self/exe").string();
  return JobProcess([=] {
    ::setenv(kPlay, name.c_str(), 1);
    return launch_workers(parse_run_options(flags), {self});
  });
}

int count(const std::string& text, const std::string& part) {
  return JobProcess::count(text, part);
}

TEST(launch_hang, an_endless_loop_is_named_with_rank_and_step_and_the_calls_of_the_others) {
  JobProcess run = job("loop", {"--hang-timeout=1"});
  const auto start = Clock::now();
  ASSERT_TRUE(run.wait_for_error("hangs in step 3: no progress for 1")) << run.err_text;
  trireme::testing::fault_took("endless loop", seconds_since(start) - 1);  // beyond its limit
  EXPECT_LT(seconds_since(start), 1 + 2 * kSlack);
  EXPECT_EQ(run.wait(), 1) << run.err_text;
  EXPECT_EQ(count(run.err_text, "rank 1 (pid "), 3)
      << run.err_text;  // said, looked at, in the block
  for (const char* part :
       {"and it waits in no call; rank 0 waits in all_reduce(float32[10], sum) at "
        "train.cc:40\n",
        "rank      : 1 (local_rank: 1)", "(its limit: 1 s; its steps take 0.0", "rank 1 (pid",
        ": state R (running)"})
    EXPECT_GE(count(run.err_text, part), 1) << part << "\n" << run.err_text;
  EXPECT_EQ(count(run.err_text, "<NO_OTHER_FAILURES>"), 1) << "the others were killed for it";
}

TEST(launch_hang, a_stopped_rank_is_named_and_all_start_again) {
  JobProcess run = job("stop", {"--max-restarts=1"});
  EXPECT_EQ(run.wait(), 0) << run.err_text;
  EXPECT_EQ(count(run.err_text,
                  "and it is stopped by a signal; rank 0 waits in barrier() at train.cc:41"),
            1)
      << run.err_text;
  EXPECT_EQ(count(run.err_text, "rank 1 hangs in step 3: all workers start again (restart 1 of 1)"),
            1)
      << run.err_text;
  EXPECT_EQ(count(run.out_text, " ends attempt 1\n"), 2) << run.out_text;
}

TEST(launch_hang, who_waits_for_a_rank_that_stopped_before_it_began_is_not_blamed) {
  JobProcess run = job("unbegun", {"--max-restarts=1", "--hang-timeout=0.1"});
  EXPECT_EQ(run.wait(), 0) << run.err_text;
  EXPECT_EQ(count(run.err_text,
                  " is stopped by a signal; rank 0 waits in the meeting of the ranks on this "
                  "host, for rank 1, for "),
            1)
      << run.err_text;
  EXPECT_EQ(count(run.err_text,
                  "rank 1 is stopped by a signal: all workers start again (restart 1 of 1)"),
            1)
      << run.err_text;
  EXPECT_EQ(count(run.out_text, " ends attempt 1\n"), 2) << run.out_text;
}

TEST(launch_hang, the_same_rank_at_the_same_step_is_not_tried_a_third_time) {
  JobProcess run = job("always", {"--max-restarts=5"});
  EXPECT_EQ(run.wait(seconds(30)), 1) << run.err_text;
  EXPECT_EQ(count(run.err_text, "start again"), 1) << run.err_text;
  EXPECT_EQ(count(run.err_text, "rank 1 hangs in step 3, for the second time: not started again"),
            1)
      << run.err_text;
}

TEST(launch_hang, ranks_that_wait_for_each_other_are_told_together) {
  JobProcess run = job("deadlock");
  EXPECT_EQ(run.wait(), 1) << run.err_text;
  EXPECT_GE(count(run.err_text, "all ranks wait for each other in step 3, for 0."), 1)
      << run.err_text;
  EXPECT_GE(count(run.err_text, "rank 1 waits in send(int64[1], to rank 0)"), 1) << run.err_text;
  EXPECT_EQ(count(run.err_text, "Signal 9 (SIGKILL) received by PID"), 2) << run.err_text;
}

TEST(launch_hang, slow_is_not_hung) {
  for (const char* name : {"slower", "between", "busy"}) {
    // A limit that a rank starved of its CPU by other tests does not reach.
    JobProcess run = job(name, {"--hang-timeout=1"});
    EXPECT_EQ(run.wait(seconds(40)), 0) << name << "\n" << run.err_text;
    EXPECT_EQ(run.err_text, "") << name;
    EXPECT_EQ(count(run.out_text, " ends attempt 0\n"), 2) << name;
  }
}

TEST(launch_hang, programs_that_do_not_mark_or_are_done_are_not_watched) {
  for (const char* name : {"unmarked", "done", "child"}) {
    JobProcess run = job(name);
    EXPECT_EQ(run.wait(), 0) << name << "\n" << run.err_text;
    EXPECT_EQ(run.err_text, "") << name;
  }
}

TEST(launch_hang, off_is_off) {
  JobProcess run = job("loop", {"--hang-timeout=off"});
  EXPECT_FALSE(run.wait_for_error("hangs", seconds(2)));
  EXPECT_EQ(run.err_text, "");
  run.send(SIGINT);
  run.send(SIGINT);
  run.wait();
}

TEST(launch_hang, a_launcher_that_was_stopped_raises_no_alarm) {
  JobProcess run = job("slower", {"--hang-timeout=1"});
  sleep_for(milliseconds(300));
  run.send(SIGSTOP);
  sleep_for(seconds(2));  // longer than the limit: the marks of that time are there to be read
  run.send(SIGCONT);
  EXPECT_EQ(run.wait(seconds(40)), 0) << run.err_text;
  EXPECT_EQ(run.err_text, "");
}

TEST(launch_hang, a_worker_that_writes_garbage_harms_nobody_but_itself) {
  JobProcess run = job("garbage", {"--hang-timeout=100"});
  ASSERT_TRUE(run.wait_for("begins\n")) << run.err_text;
  EXPECT_FALSE(run.wait_for_error("trireme", seconds(2))) << run.err_text;
  run.send(SIGINT);  // it still listens
  EXPECT_EQ(run.wait(), 130) << run.err_text;
  EXPECT_EQ(count(run.err_text, "hangs"), 0) << run.err_text;
}

TEST(launch_hang, remote_calls_that_are_under_way_are_named) {
  PrivateFolder folder("hang");
  JobProcess run = job("calls", {"--log-dir=" + folder.path()});
  EXPECT_EQ(run.wait(seconds(30)), 1) << run.err_text;
  std::string report;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder.path()))
    if (entry.path().filename() == "hang.txt") report = read_file(entry.path().string());
  for (const char* part : {"calls under way of worker 'trainer0' (pid ",
                           "  waits for 'pull' on worker 'server0', since "})
    EXPECT_EQ(count(report, part), 1) << part << "\n" << report;
}

TEST(launch_hang, with_a_log_folder_what_the_ranks_did_is_kept) {
  PrivateFolder folder("hang");
  JobProcess run = job("loop", {"--log-dir=" + folder.path()});
  EXPECT_EQ(run.wait(seconds(30)), 1) << run.err_text;
  std::string report;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder.path()))
    if (entry.path().filename() == "hang.txt") report = read_file(entry.path().string());
  for (const char* part : {"rank 1 (pid ", "hangs in step 3", "  thread ", ": state R (running)",
                           "waits in all_reduce(float32[10], sum)"})
    EXPECT_GE(count(report, part), 1) << part << "\n" << report;
}

}  // namespace
}  // namespace trireme::launch::hang_test
