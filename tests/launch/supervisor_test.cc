// SPDX-License-Identifier: Apache-2.0
#include "trireme/launch/supervisor.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <set>
#include <sstream>

#include "tests/launch/job_process.h"
#include "trireme/base/file.h"
#include "trireme/launch/process/leftovers.h"
#include "trireme/launch/run_lock.h"

// Workers are /bin/sh scripts. A job's streams end only when every process that it started is gone,
// so that `wait() >= 0` also says: no orphan.
namespace trireme::launch::supervisor_test {
namespace {

using std::chrono::seconds;

std::string name_of(pid_t pid) {
  std::string name = read_file("/proc/" + std::to_string(pid) + "/comm");
  return name.substr(0, name.find('\n'));
}

std::vector<pid_t> children_of(pid_t parent) {
  const std::string task = "/proc/" + std::to_string(parent) + "/task/" + std::to_string(parent);
  std::istringstream text(read_file(task + "/children"));
  std::vector<pid_t> children;
  for (pid_t pid; text >> pid;) children.push_back(pid);
  return children;
}

constexpr double kSlack = 3;  // promises are in seconds of an idle machine

TEST(launch_supervisor, workers_that_end_well_give_0) {
  JobProcess job({"--nproc-per-node=3"}, "echo rank $RANK of $WORLD_SIZE");
  EXPECT_EQ(job.wait(), 0) << job.err_text;
  for (const char* line : {"rank 0 of 3\n", "rank 1 of 3\n", "rank 2 of 3\n"})
    EXPECT_EQ(JobProcess::count(job.out_text, line), 1) << job.out_text;
  EXPECT_EQ(job.err_text, "");
}

// It costs them a socket, and nothing is said.
TEST(launch_supervisor, programs_that_know_nothing_of_snapshots_may_fail_as_they_like) {
  JobProcess job({"--nproc-per-node=2"}, "test -S \"$TRIREME_SNAPSHOTS\" && echo held; exit 3");
  EXPECT_EQ(job.wait(), 1) << job.err_text;
  EXPECT_GE(JobProcess::count(job.out_text, "held\n"), 1) << job.out_text;
  EXPECT_EQ(JobProcess::count(job.err_text, "memory"), 0) << job.err_text;
  EXPECT_EQ(JobProcess::count(job.err_text, "snapshot"), 0) << job.err_text;
}

TEST(launch_supervisor, a_failing_worker_stops_the_others_within_five_seconds) {
  auto start = Clock::now();
  JobProcess job({"--nproc-per-node=3"},
                 "if [ $RANK = 1 ]; then exit 3; fi; trap '' TERM; while :; do sleep 0.1; done");
  EXPECT_EQ(job.wait(seconds(60)), 1) << job.err_text;
  EXPECT_LT(seconds_since(start), 5 * kSlack);
  EXPECT_NE(job.err_text.find("/bin/sh FAILED"), std::string::npos) << job.err_text;
  EXPECT_NE(job.err_text.find("<NO_OTHER_FAILURES>"), std::string::npos) << job.err_text;
  EXPECT_NE(job.err_text.find("rank      : 1 (local_rank: 1)\n  exitcode  : 3 (pid: "),
            std::string::npos)
      << job.err_text;
}

TEST(launch_supervisor, workers_hear_SIGTERM_first_when_another_failed) {
  JobProcess job(
      {"--nproc-per-node=2"},
      "if [ $RANK = 1 ]; then until [ -e $TRIREME_SECRET_FILE.ready ]; do sleep 0.02; done; "
      "exit 3; fi; trap 'echo leaving; exit 0' TERM; : > $TRIREME_SECRET_FILE.ready; "
      "while :; do sleep 0.02; done");
  EXPECT_EQ(job.wait(), 1) << job.err_text;
  EXPECT_EQ(job.out_text, "leaving\n");
}

TEST(launch_supervisor, a_signal_is_named_before_the_peer_that_lost_it) {
  JobProcess job({"--nproc-per-node=2"},
                 R"(if [ $RANK = 0 ]; then
                      echo '{"message": {"message": "PeerLost: rank 1 is gone", "extraInfo": {}}}' \
                        > $TORCHELASTIC_ERROR_FILE
                      exit 1
                    fi
                    sleep 0.1; kill -SEGV $$)");
  EXPECT_EQ(job.wait(), 1);
  auto root = job.err_text.find("Root Cause");
  ASSERT_NE(root, std::string::npos) << job.err_text;
  EXPECT_NE(job.err_text.find("Signal 11 (SIGSEGV) received by PID", root), std::string::npos)
      << job.err_text;
  EXPECT_LT(job.err_text.find("PeerLost: rank 1 is gone"), root) << job.err_text;
}

TEST(launch_supervisor, the_message_of_an_error_file_is_shown) {
  JobProcess job(
      {"--nproc-per-node=1"},
      R"(echo '{"message": {"message": "ValueError: batch 3", "extraInfo": {"py_callstack":
                 "Traceback: ValueError: batch 3", "timestamp": "1"}}}' > $TORCHELASTIC_ERROR_FILE; exit 1)");
  EXPECT_EQ(job.wait(), 1);
  EXPECT_NE(job.err_text.find("traceback : Traceback: ValueError: batch 3"), std::string::npos)
      << job.err_text;
}

TEST(launch_supervisor, interrupted_once_workers_save_and_their_130_is_the_jobs) {
  JobProcess job({"--nproc-per-node=2"},
                 "trap 'echo saved; exit 130' INT; echo ready; while :; do sleep 0.02; done");
  ASSERT_TRUE(job.wait_for("ready\n", 2));
  job.send(SIGINT);
  EXPECT_EQ(job.wait(), 130);
  EXPECT_EQ(JobProcess::count(job.out_text, "saved\n"), 2);
  EXPECT_EQ(job.err_text.find("FAILED"), std::string::npos) << job.err_text;
}

TEST(launch_supervisor, interrupted_twice_workers_are_killed_at_once) {
  JobProcess job({"--nproc-per-node=2", "--shutdown-timeout=300"},
                 "trap '' INT; echo ready; while :; do sleep 0.02; done");
  ASSERT_TRUE(job.wait_for("ready\n", 2));
  auto start = Clock::now();
  // Repeats within 100 ms are one request (timeout(1) sends two): go on until it listens.
  while (!job.wait_for_silence(std::chrono::milliseconds(60)) && seconds_since(start) < 60)
    job.send(SIGINT);
  EXPECT_EQ(job.wait(), 130);
  EXPECT_LT(seconds_since(start), 2 * kSlack);
}

TEST(launch_supervisor, one_request_sent_twice_does_not_kill) {
  JobProcess job(
      {"--nproc-per-node=1"},
      "trap 'sleep 0.2; echo saved; exit 0' TERM; echo ready; while :; do sleep 0.02; done");
  ASSERT_TRUE(job.wait_for("ready\n"));
  job.send(SIGTERM);
  job.send(SIGTERM);
  EXPECT_EQ(job.wait(), 128 + SIGTERM);
  EXPECT_NE(job.out_text.find("saved\n"), std::string::npos) << job.err_text;
}

TEST(launch_supervisor, a_worker_that_does_not_leave_in_time_is_killed) {
  JobProcess job({"--nproc-per-node=1", "--shutdown-timeout=0.2"},
                 "trap '' TERM; echo ready; while :; do sleep 0.02; done");
  ASSERT_TRUE(job.wait_for("ready\n"));
  auto start = Clock::now();
  job.send(SIGTERM);
  EXPECT_EQ(job.wait(), 128 + SIGTERM);
  EXPECT_LT(seconds_since(start), 2 * kSlack);
  EXPECT_NE(job.err_text.find("did not leave in time"), std::string::npos) << job.err_text;
}

TEST(launch_supervisor, a_stopped_worker_hears_the_signal_at_once) {
  JobProcess job(
      {"--nproc-per-node=2", "--shutdown-timeout=300"},
      "trap 'echo saved; exit 75' TERM; echo ready; if [ $RANK = 1 ]; then kill -STOP $$; fi; "
      "while :; do sleep 0.02; done");
  ASSERT_TRUE(job.wait_for("ready\n", 2));
  ::usleep(200'000);  // so that it is stopped indeed; it saves before that as well
  auto start = Clock::now();
  job.send(SIGTERM);
  EXPECT_EQ(job.wait(seconds(60)), 75) << job.err_text;
  EXPECT_EQ(JobProcess::count(job.out_text, "saved\n"), 2);
  EXPECT_LT(seconds_since(start), 5 * kSlack);
}

TEST(launch_supervisor, a_worker_that_stays_stopped_delays_the_end_by_seconds) {
  JobProcess job({"--nproc-per-node=2", "--shutdown-timeout=300"},
                 "trap '' TERM; echo ready; while [ $RANK = 1 ]; do kill -STOP $$; done; "
                 "while :; do sleep 0.02; done");
  ASSERT_TRUE(job.wait_for("ready\n", 2));
  auto start = Clock::now();
  job.send(SIGTERM);
  EXPECT_EQ(job.wait(seconds(60)), 128 + SIGTERM) << job.err_text;
  EXPECT_LT(seconds_since(start), 5 * kSlack);
  EXPECT_NE(job.err_text.find("worker 1 (pid "), std::string::npos) << job.err_text;
  EXPECT_NE(job.err_text.find("is stopped and does not continue"), std::string::npos)
      << job.err_text;
}

TEST(launch_supervisor, what_a_launcher_and_its_keeper_left_goes_with_the_next_start) {
  PrivateFolder temporary;
  const std::string tmp = "TMPDIR=" + temporary.path();
  JobProcess job([&] {
    ::putenv(const_cast<char*>(tmp.c_str()));
    return launch_workers(parse_run_options({"--nproc-per-node=1"}),
                          {"/bin/sh", "-c", "setsid sleep 300 & echo left=$!; wait"});
  });
  ASSERT_TRUE(job.wait_for("left=") && job.wait_for("\n")) << job.err_text;
  const pid_t left = std::stoi(job.out_text.substr(job.out_text.find("left=") + 5));
  ASSERT_FALSE(std::filesystem::is_empty(temporary.path()));
  // As the end of a container does it: nobody is left to clean up.
  for (pid_t pid : children_of(job.pid()))
    if (name_of(pid) == "trireme-keeper") ::kill(pid, SIGKILL);
  job.send(SIGKILL);
  auto deadline = Deadline::after(seconds(20));
  while (start_of_process(job.pid()) && !deadline.expired()) ::usleep(5000);
  ASSERT_EQ(::kill(left, 0), 0) << "it is gone already: the test shows nothing";

  JobProcess next([&] {
    ::putenv(const_cast<char*>(tmp.c_str()));
    return launch_workers(parse_run_options({"--nproc-per-node=1"}), {"/bin/true"});
  });
  EXPECT_EQ(next.wait(), 0) << next.err_text;
  EXPECT_NE(next.err_text.find("removed what a killed launcher had left"), std::string::npos)
      << next.err_text;
  EXPECT_TRUE(std::filesystem::is_empty(temporary.path()));
  deadline = Deadline::after(seconds(10));
  while (start_of_process(left) && !deadline.expired()) ::usleep(5000);
  EXPECT_FALSE(start_of_process(left).has_value());
}

TEST(launch_supervisor, a_keeper_that_is_killed_is_one_warning_and_not_the_end_of_the_job) {
  JobProcess job({"--nproc-per-node=2"}, "echo ready; sleep 0.5");
  ASSERT_TRUE(job.wait_for("ready\n", 2)) << job.err_text;
  int keepers = 0;
  for (pid_t pid : children_of(job.pid()))
    if (name_of(pid) == "trireme-keeper") keepers += ::kill(pid, SIGKILL) == 0;
  ASSERT_EQ(keepers, 1);
  EXPECT_EQ(job.wait(), 0) << job.err_text;
  EXPECT_EQ(JobProcess::count(job.err_text, "keeper process"), 1) << job.err_text;
  EXPECT_EQ(JobProcess::count(job.err_text, "error"), 0) << job.err_text;
}

TEST(launch_supervisor, folders_of_living_launchers_and_of_nobody_stay) {
  PrivateFolder base;
  for (const char* name : {"trireme.living", "trireme.nobodys", "trireme.others"}) {
    std::filesystem::create_directory(base / name);
    ::chmod((base / name).c_str(), 0700);
  }
  mark_owner(base / "trireme.living");
  LockOwner elsewhere = this_owner();
  elsewhere.process.host = "node7";
  elsewhere.process.boot = "another";
  write_file_atomic(base / "trireme.others/owner", lock_text(elsewhere));
  sweep_leftovers(base.path());
  for (const char* name : {"trireme.living", "trireme.nobodys", "trireme.others"})
    EXPECT_TRUE(std::filesystem::exists(base / name)) << name;
  LockOwner dead = this_owner();
  dead.process.start -= 1;  // the same number, another process
  write_file_atomic(base / "trireme.nobodys/owner", lock_text(dead));
  sweep_leftovers(base.path());
  EXPECT_FALSE(std::filesystem::exists(base / "trireme.nobodys"));
}

TEST(launch_supervisor, workers_that_saved_to_be_started_again_say_75) {
  JobProcess job({"--nproc-per-node=2", "--signals-to-handle=SIGUSR1"},
                 "trap 'exit 75' USR1; echo ready; while :; do sleep 0.02; done");
  ASSERT_TRUE(job.wait_for("ready\n", 2));
  job.send(SIGUSR1);
  EXPECT_EQ(job.wait(), 75);
}

TEST(launch_supervisor, workers_that_were_signalled_themselves_say_75_or_130_one_after_another) {
  for (int code : {75, 130}) {
    JobProcess job({"--nproc-per-node=2"},
                   "[ $RANK = 1 ] && sleep 0.5; exit " + std::to_string(code));
    EXPECT_EQ(job.wait(), code);
    EXPECT_EQ(job.err_text, "");
  }
}

TEST(launch_supervisor, one_worker_that_says_75_alone_has_failed) {
  auto start = Clock::now();
  JobProcess job({"--nproc-per-node=2"},
                 "[ $RANK = 1 ] && exit 75; trap 'echo leaving; exit 0' TERM; "
                 "while :; do sleep 0.02; done");
  EXPECT_EQ(job.wait(), 1);
  EXPECT_EQ(job.out_text, "leaving\n");
  EXPECT_LT(seconds_since(start), 5 * kSlack);
  EXPECT_NE(job.err_text.find("exitcode  : 75"), std::string::npos) << job.err_text;
}

TEST(launch_supervisor, a_failure_beside_one_that_says_75_stops_the_others_at_once) {
  auto start = Clock::now();
  JobProcess job({"--nproc-per-node=3"},
                 "[ $RANK = 1 ] && exit 75; [ $RANK = 2 ] && { sleep 0.2; exit 3; }; "
                 "while :; do sleep 0.02; done");
  EXPECT_EQ(job.wait(), 1);
  EXPECT_LT(seconds_since(start), 2.5);
  EXPECT_NE(job.err_text.find("exitcode  : 3"), std::string::npos) << job.err_text;
}

TEST(launch_supervisor, SIGHUP_again_is_the_same_request) {
  JobProcess job({"--nproc-per-node=1", "--shutdown-timeout=300"},
                 "trap 'echo heard; sleep 0.5; exit 75' HUP; echo ready; while :; do sleep 0.02; "
                 "done");
  ASSERT_TRUE(job.wait_for("ready\n"));
  job.send(SIGHUP);
  ASSERT_TRUE(job.wait_for("heard\n"));
  ::usleep(150'000);  // longer than what counts as one request of any signal
  job.send(SIGHUP);
  EXPECT_EQ(job.wait(), 75) << job.err_text;
}

TEST(launch_supervisor, different_signals_are_one_request) {
  const std::vector<std::vector<int>> sequences{{SIGTERM, SIGHUP}, {SIGTERM, SIGUSR1},
                                                {SIGINT, SIGHUP},  {SIGHUP, SIGUSR1, SIGHUP},
                                                {SIGHUP, SIGTERM}, {SIGUSR1, SIGTERM}};
  for (const std::vector<int>& signals : sequences) {
    JobProcess job({"--nproc-per-node=1", "--shutdown-timeout=300"},
                   "trap 'echo heard; sleep 1; exit 75' TERM INT HUP USR1; echo ready; "
                   "while :; do sleep 0.02; done");
    ASSERT_TRUE(job.wait_for("ready\n"));
    job.send(signals[0]);
    ASSERT_TRUE(job.wait_for("heard\n"));
    for (size_t i = 1; i < signals.size(); ++i) {
      ::usleep(150'000);  // longer than what counts as one request sent twice
      job.send(signals[i]);
    }
    EXPECT_EQ(job.wait(), 75) << signals[0] << " and " << signals[1] << "\n" << job.err_text;
    EXPECT_EQ(job.err_text.find("at once\n"), std::string::npos) << job.err_text;
  }
}

TEST(launch_supervisor, the_second_SIGTERM_after_a_warning_kills_at_once) {
  JobProcess job({"--nproc-per-node=1", "--shutdown-timeout=300"},
                 "trap 'echo heard' USR1; echo ready; while :; do sleep 0.02; done");
  ASSERT_TRUE(job.wait_for("ready\n"));
  job.send(SIGUSR1);
  ASSERT_TRUE(job.wait_for("heard\n"));
  job.send(SIGTERM);
  EXPECT_FALSE(job.wait_for_silence(std::chrono::milliseconds(300))) << job.err_text;
  job.send(SIGTERM);
  EXPECT_EQ(job.wait(), 128 + SIGUSR1) << job.err_text;
}

TEST(launch_supervisor, a_program_under_a_script_that_the_signal_ended_may_still_save) {
  JobProcess job({"--nproc-per-node=1"},
                 R"(/bin/sh -c 'trap "sleep 0.3; echo saved; exit 0" TERM; echo ready
                    while :; do sleep 0.02; done')"
                 "\n:");  // not its last command: the outer shell stays
  ASSERT_TRUE(job.wait_for("ready\n"));
  job.send(SIGTERM);
  EXPECT_EQ(job.wait(), 128 + SIGTERM);
  EXPECT_NE(job.out_text.find("saved\n"), std::string::npos) << job.err_text;
}

TEST(launch_supervisor, what_workers_leave_behind_is_killed) {
  auto start = Clock::now();
  JobProcess job({"--nproc-per-node=2"}, "sleep 60 & setsid sleep 60 & exit 0");
  EXPECT_EQ(job.wait(seconds(30)), 0);
  EXPECT_LT(seconds_since(start), 2 * kSlack);
}

TEST(launch_supervisor, a_launcher_that_is_killed_leaves_no_process_and_no_folder) {
  JobProcess job({"--nproc-per-node=2"},
                 "sleep 60 & setsid sleep 60 & echo at $TRIREME_SECRET_FILE; trap '' TERM; wait");
  ASSERT_TRUE(job.wait_for("/secret\n", 2)) << job.err_text;
  auto from = job.out_text.find("at ") + 3;
  auto folder = std::filesystem::path(job.out_text.substr(from, job.out_text.find('\n') - from))
                    .parent_path();
  ASSERT_TRUE(std::filesystem::exists(folder));
  auto start = Clock::now();
  job.send(SIGKILL);
  EXPECT_EQ(job.wait(seconds(30)), 128 + SIGKILL);
  EXPECT_LT(seconds_since(start), 2 * kSlack);
  auto deadline = Deadline::after(seconds(10));
  while (std::filesystem::exists(folder) && !deadline.expired()) ::usleep(5000);
  EXPECT_FALSE(std::filesystem::exists(folder));
}

TEST(launch_supervisor, a_killed_worker_takes_its_job_down) {
  JobProcess job({"--nproc-per-node=2"}, "echo $RANK=$$; while :; do sleep 0.02; done");
  ASSERT_TRUE(job.wait_for("0=") && job.wait_for("1=") && job.wait_for("\n", 2));
  auto at = job.out_text.find("1=") + 2;
  ::kill(std::stoi(job.out_text.substr(at)), SIGKILL);
  EXPECT_EQ(job.wait(), 1);
  EXPECT_NE(job.err_text.find("Signal 9 (SIGKILL) received by PID"), std::string::npos)
      << job.err_text;
}

TEST(launch_supervisor, workers_inherit_the_launchers_descriptors_and_no_more) {
  // The shell counts its own: what it has without a launcher is what it may have with one.
  std::string script = "set -- /proc/$$/fd/*; echo $#";
  int bare[2];
  ASSERT_EQ(::pipe(bare), 0);
  pid_t shell = ::fork();
  if (shell == 0) {
    ::dup2(bare[1], 1);
    ::close(bare[0]);
    ::close(bare[1]);
    ::execl("/bin/sh", "sh", "-c", script.c_str(), nullptr);
    ::_exit(127);
  }
  ::close(bare[1]);
  char buffer[64] = "";
  ASSERT_GT(::read(bare[0], buffer, sizeof buffer - 1), 0);
  ::close(bare[0]);
  ::waitpid(shell, nullptr, 0);

  JobProcess job({"--nproc-per-node=2"}, script);
  EXPECT_EQ(job.wait(), 0);
  EXPECT_EQ(job.out_text, std::string(buffer) + buffer);
}

int open_descriptors() {
  int count = 0;
  for ([[maybe_unused]] auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) ++count;
  return count;
}

TEST(launch_supervisor, a_job_leaves_the_launcher_as_it_was) {
  JobProcess job([] {
    int before = open_descriptors();
    sigset_t mask_before, mask_after;
    ::sigprocmask(SIG_SETMASK, nullptr, &mask_before);
    PrivateFolder logs;
    auto options = parse_run_options({"--nproc-per-node=2", "--tee=3", "--log-dir=" + logs.path()});
    int code = launch_workers(options, {"/bin/true"});
    ::sigprocmask(SIG_SETMASK, nullptr, &mask_after);
    for (int n = 1; n < 32; ++n)
      if (sigismember(&mask_before, n) != sigismember(&mask_after, n)) return 3;
    if (open_descriptors() != before) return 4;
    if (::waitpid(-1, nullptr, WNOHANG) != -1) return 5;  // a child is left
    return code;
  });
  EXPECT_EQ(job.wait(), 0) << job.err_text;
}

TEST(launch_supervisor, a_program_that_cannot_start_is_a_usage_error_before_anything_runs) {
  JobProcess job([]() -> int {
    try {
      return launch_workers(parse_run_options({"--nproc-per-node=2"}), {"/no/such/program"});
    } catch (const UsageError&) {
      return 2;
    }
  });
  EXPECT_EQ(job.wait(), 2);
}

TEST(launch_supervisor, bound_workers_run_on_their_cpus) {
  auto mask = inherited_affinity();
  if (mask.size() < 2) GTEST_SKIP() << "needs two CPUs";
  std::string first = std::to_string(mask[0]), second = std::to_string(mask[1]);
  JobProcess job({"--nproc-per-node=2", "--cpu-binding=" + first + ":" + second},
                 "echo $RANK: $(grep Cpus_allowed_list /proc/self/status)");
  EXPECT_EQ(job.wait(), 0);
  EXPECT_NE(job.out_text.find("0: Cpus_allowed_list: " + first + "\n"), std::string::npos);
  EXPECT_NE(job.out_text.find("1: Cpus_allowed_list: " + second + "\n"), std::string::npos)
      << job.out_text;
}

TEST(launch_supervisor, workers_bound_to_a_socket_with_a_virtual_local_rank_are_the_first_there) {
  JobProcess job({"--nproc-per-node=2", "--numa-binding=socket", "--virtual-local-rank"},
                 "echo $RANK, $LOCAL_RANK of $LOCAL_WORLD_SIZE: $(grep Cpus_allowed_list "
                 "/proc/self/status)");
  JobProcess alone({"--numa-binding=socket"}, "grep Cpus_allowed_list /proc/self/status");
  EXPECT_EQ(job.wait(), 0);
  EXPECT_EQ(alone.wait(), 0);
  // On one socket both have what a worker alone has; on two, each has another.
  std::set<int> sockets;
  for (const Cpu& cpu : read_cpus()) sockets.insert(cpu.package);
  std::string cpus = alone.out_text.substr(alone.out_text.find(':') + 1);
  cpus = " Cpus_allowed_list:" + (sockets.size() == 1 ? " " + cpus.substr(1) : std::string());
  for (const char* rank : {"0", "1"})
    EXPECT_NE(job.out_text.find(std::string(rank) + ", 0 of 2:" + cpus), std::string::npos)
        << job.out_text << alone.out_text;
}

}  // namespace
}  // namespace trireme::launch::supervisor_test
