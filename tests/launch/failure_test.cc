// SPDX-License-Identifier: Apache-2.0
#include "trireme/launch/failure.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "trireme/base/file.h"
#include "trireme/launch/machine/oom.h"

namespace trireme::launch::failure_test {
namespace {

constexpr int64_t kSecond = 1'000'000'000;
constexpr int64_t kStart = 1'790'000'000 * kSecond;

WorkerFailure failure(int rank, int code, int64_t after_ms) {
  WorkerFailure f;
  f.rank = f.local_rank = rank;
  f.pid = 1000 + rank;
  f.exit_code = code;
  f.observed_ns = kStart + after_ms * 1'000'000;
  return f;
}

WorkerFailure with_report(WorkerFailure f, const std::string& type, int64_t after_ms) {
  f.report = ErrorReport{type, type + ": what happened", "", kStart + after_ms * 1'000'000, false};
  return f;
}

TEST(launch_failure, the_first_cause_is_the_earliest_failure) {
  EXPECT_EQ(first_cause({failure(0, 1, 20), failure(1, 1, 10)}), 1u);
  EXPECT_EQ(first_cause({failure(0, 1, 10), failure(1, 1, 10)}), 0u);
}

TEST(launch_failure, an_earlier_stamp_in_an_error_file_wins_over_being_seen_first) {
  EXPECT_EQ(first_cause({failure(0, 1, 20), with_report(failure(1, 1, 30), "UsageError", 5)}), 1u);
  // A stamp later than the worker's end is a clock that lies.
  EXPECT_EQ(first_cause({failure(0, 1, 20), with_report(failure(1, 1, 10), "UsageError", 9000)}),
            1u);
}

TEST(launch_failure, a_failure_is_one_line_of_printable_text) {
  EXPECT_EQ(failure_sentence(failure(1, 3, 0)), "rank 1 (pid 1001) failed with exit code 3");
  EXPECT_EQ(failure_sentence(failure(0, -9, 0)), "rank 0 (pid 1000) was ended by SIGKILL");
  auto killed = failure(0, -9, 0);
  killed.note = "the kernel was out of memory";
  EXPECT_EQ(failure_sentence(killed),
            "rank 0 (pid 1000) was ended by SIGKILL (the kernel was out of memory)");
  auto said = with_report(failure(2, 1, 0), "ValueError", 0);
  said.report->message = "ValueError: batch 3\x1b[31m\nTraceback: many lines";
  EXPECT_EQ(failure_sentence(said),
            "rank 2 (pid 1002) failed with exit code 1: ValueError: batch 3[31m");
}

TEST(launch_failure, a_step_that_is_named_is_seen) {
  for (const char* text :
       {"'w' on rank 1 is not finite in step 7", "step 12: no", "step x, step 3"})
    EXPECT_TRUE(names_a_step(text)) << text;
  for (const char* text : {"", "step", "step ", "a step of 3", "steps 7", "in step_7"})
    EXPECT_FALSE(names_a_step(text)) << text;
}

TEST(launch_failure, losing_a_peer_is_never_the_first_cause_beside_another) {
  for (const char* type : {"PeerLost", "Aborted", "Timeout"}) {
    EXPECT_EQ(first_cause({with_report(failure(0, 1, 10), type, 5), failure(1, -11, 400)}), 1u)
        << type;
    EXPECT_EQ(first_cause({with_report(failure(0, 1, 10), type, 5),
                           with_report(failure(1, 1, 400), "NumericError", 390)}),
              1u)
        << type;
    EXPECT_EQ(first_cause({with_report(failure(0, 1, 10), type, 5)}), 0u);
  }
}

TEST(launch_failure, a_stamp_in_whole_seconds_does_not_overtake_within_that_second) {
  auto python = failure(0, 1, 700);
  python.report = ErrorReport{"ValueError", "ValueError: x", "", kStart, true};
  EXPECT_EQ(first_cause({python, failure(1, -9, 300)}), 1u);
  python.observed_ns = kStart + 2500'000'000;
  EXPECT_EQ(first_cause({python, failure(1, -9, 2300)}), 0u);
}

TEST(launch_failure, the_block_has_torchs_shape) {
  auto root = failure(1, -11, 0);
  auto other = with_report(failure(0, 1, 40), "PeerLost", 30);
  other.error_file = "/logs/0/error.json";
  std::string block = format_error_block("./train", "node1", {other, root});
  std::string bar(60, '='), line(60, '-');
  EXPECT_EQ(block.find(bar + "\n./train FAILED\n" + line + "\nFailures:\n[1]:\n"), 0u) << block;
  auto cause = block.find(line + "\nRoot Cause (first observed failure):\n[0]:\n");
  ASSERT_NE(cause, std::string::npos) << block;
  std::string tail = block.substr(cause);
  EXPECT_NE(tail.find("  host      : node1\n"), std::string::npos);
  EXPECT_NE(tail.find("  rank      : 1 (local_rank: 1)\n"), std::string::npos);
  EXPECT_NE(tail.find("  exitcode  : -11 (pid: 1001)\n"), std::string::npos);
  EXPECT_NE(tail.find("  error_file: <N/A>\n"), std::string::npos);
  EXPECT_NE(tail.find("  traceback : Signal 11 (SIGSEGV) received by PID 1001\n" + bar),
            std::string::npos);
  EXPECT_NE(block.find("error_file: /logs/0/error.json"), std::string::npos);
  EXPECT_NE(block.find("PeerLost: what happened"), std::string::npos);
  std::string alone = format_error_block("p", "h", {root});
  EXPECT_NE(alone.find("Failures:\n  <NO_OTHER_FAILURES>\n"), std::string::npos);
}

TEST(launch_failure, escape_sequences_of_a_worker_do_not_reach_the_terminal) {
  auto f = failure(0, 1, 0);
  f.report = ErrorReport{"E", "E: \x1b[2Jgone\nsecond", "", std::nullopt, false};
  std::string block = format_error_block("p", "h", {f});
  EXPECT_EQ(block.find('\x1b'), std::string::npos);
  EXPECT_NE(block.find("gone\n    second"), std::string::npos) << block;
}

TEST(launch_failure, an_error_file_comes_back_as_written) {
  PrivateFolder folder;
  std::string path = folder / "error.json";
  EXPECT_FALSE(read_error_file(path));
  write_error_file(path, "PeerLost", "rank 1 ended \"early\"", "at step.cc:12");
  write_error_file(path, "Aborted", "a later one changes nothing");
  auto report = read_error_file(path);
  ASSERT_TRUE(report);
  EXPECT_EQ(report->type, "PeerLost");
  EXPECT_EQ(report->message, "PeerLost: rank 1 ended \"early\"");
  EXPECT_EQ(report->callstack, "at step.cc:12");
  EXPECT_GT(report->time_ns.value_or(0), kStart / 2);
  EXPECT_FALSE(report->whole_seconds);
}

TEST(launch_failure, torchelastics_files_are_read_and_broken_ones_are_not) {
  PrivateFolder folder;
  std::string path = folder / "error.json";
  auto read = [&](const std::string& text) {
    std::ofstream(path, std::ios::trunc) << text;
    return read_error_file(path);
  };
  auto python = read(R"({"message": {"message": "ValueError: bad", "extraInfo": {"py_callstack":
      "Traceback…", "timestamp": "1790000000"}, "errorCode": 1}})");
  ASSERT_TRUE(python);
  EXPECT_EQ(python->type, "ValueError");
  EXPECT_EQ(python->time_ns, kStart);
  EXPECT_TRUE(python->whole_seconds);
  auto plain = read(R"({"message": "only words: here"})");
  ASSERT_TRUE(plain);
  EXPECT_EQ(plain->type, "");
  EXPECT_FALSE(plain->time_ns);
  for (const char* bad : {"", "{", "[]", "{}", R"({"message": 3})", "\xff\xfe"})
    EXPECT_FALSE(read(bad)) << bad;
}

TEST(launch_failure, a_rise_of_the_kernels_memory_kills_is_said) {
  PrivateFolder root;
  auto put = [&](const std::string& name, const std::string& text) {
    std::filesystem::create_directories(std::filesystem::path(root / name).parent_path());
    std::ofstream(root / name) << text;
  };
  put("proc/self/cgroup", "0::/job\n");
  put("sys/fs/cgroup/job/memory.events", "low 0\noom 1\noom_kill 1\n");
  put("sys/fs/cgroup/job/memory.max", "536870912\n");
  auto before = read_oom_count(root.path());
  EXPECT_EQ(before.kills, 1);
  EXPECT_EQ(oom_note(before, before), "");
  put("sys/fs/cgroup/job/memory.events", "low 0\noom 2\noom_kill 2\n");
  std::string note = oom_note(before, read_oom_count(root.path()));
  EXPECT_NE(note.find("want of memory"), std::string::npos);
  EXPECT_NE(note.find("limit 512 MiB"), std::string::npos) << note;

  put("proc/self/cgroup", "4:memory:/v1\n");
  put("sys/fs/cgroup/memory/v1/memory.oom_control",
      "oom_kill_disable 0\nunder_oom 0\noom_kill 7\n");
  EXPECT_EQ(read_oom_count(root.path()).kills, 7);
}

}  // namespace
}  // namespace trireme::launch::failure_test
