// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "tests/checkpoint/steps/written_step.h"
#include "tests/support/command.h"
#include "tests/support/refusals.h"
#include "trireme/base/check.h"

// Verbs that read a step of a run which goes on: it deletes old steps meanwhile. And folders that
// somebody else can write to.
namespace trireme::testing::checkpoint_deleted_test {
namespace {

namespace fs = std::filesystem;
using namespace trireme::test;

std::string write_step(const std::string& run, int64_t step) {
  return write_test_step(run, step, {{"model.w", "F32", {3, 2}, counted(6)}});
}

struct Answer {
  int code;
  std::string out, err;
};

bool has_open(pid_t pid, const std::string& path) {
  std::error_code ignored;
  for (int fd : numbers_in(fmt::format("/proc/{}/fd", pid)))
    if (fs::read_symlink(fmt::format("/proc/{}/fd/{}", pid, fd), ignored) == path) return true;
  return false;
}

/// Runs a verb, and deletes the folder `step` before the verb's first call on a file of that name
/// in it.
Answer while_deleting(Arguments words, const std::string& step, const std::string& file) {
  PrivateFolder logs;
  const std::string log = fs::canonical(logs.path()).string() + "/calls";
  // Before each call that is written down, the log is locked: who holds the lock holds the verb.
  UniqueFd held(::open(log.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (::flock(held.get(), LOCK_EX) != 0) fail<Error>("flock: {}", errno_text());
  words.insert(words.begin(), "checkpoint");
  Command command(trireme(words),
                  {{{"TRIREME_FILE_FAULTS",
                     "only=" + fs::path(step).filename().string() + "/" + file + ",count=" + log}},
                   {}});
  // Before it becomes the verb, the child has our descriptor.
  EXPECT_TRUE(eventually(
      [&] { return program_of(command.pid()) == "trireme" && has_open(command.pid(), log); }));
  fs::remove_all(step);
  held.reset();
  const int code = command.finish();
  return {code, command.out, command.err};
}

std::string deleted_text(const std::string& step) {
  return step +
         " was deleted while it was read (a running job keeps only its newest steps): name a "
         "newer one";
}

TEST(cli_checkpoint_deleted, a_step_that_goes_while_it_is_read_is_not_called_damaged) {
  for (const char* verb : {"verify", "export", "diff", "show"}) {
    PrivateFolder run, other;
    const std::string step = write_step(run.path(), 1), kept = write_step(run.path(), 2);
    Arguments words{verb, step};
    if (verb == std::string("export")) words.push_back(other / "out.pt");
    if (verb == std::string("diff")) words.push_back(kept);
    const bool index = verb == std::string("show");
    const Answer answer =
        while_deleting(words, step, index ? "trireme.index.json" : "model.safetensors");
    EXPECT_EQ(answer.code, verb == std::string("diff") ? 2 : 1) << verb;
    EXPECT_TRUE(has(answer.err, deleted_text(step))) << verb << ": " << answer.err;
    EXPECT_FALSE(has(answer.err, "missing") || has(answer.err, "damaged")) << answer.err;
    EXPECT_FALSE(fs::exists(other / "out.pt"));
  }
}

TEST(cli_checkpoint_deleted, a_file_that_is_missing_in_a_step_that_is_there_is_damage) {
  PrivateFolder run, other;
  const std::string step = write_step(run.path(), 1);
  fs::remove(step + "/model.safetensors");
  for (const Arguments& words : {Arguments{"checkpoint", "verify", step},
                                 Arguments{"checkpoint", "export", step, other / "out.pt"}}) {
    Command command(trireme(words));
    EXPECT_EQ(command.finish(), 1);
    EXPECT_TRUE(has(command.out + command.err, "model.safetensors is missing")) << command.err;
  }
}

TEST(cli_checkpoint_deleted, verify_all_goes_on_to_the_steps_that_are_there) {
  PrivateFolder run;
  const std::string step = write_step(run.path(), 1);
  write_step(run.path(), 2);
  const Answer answer =
      while_deleting({"verify", run.path(), "--all", "--json"}, step, "model.safetensors");
  EXPECT_EQ(answer.code, 0) << answer.err;
  EXPECT_TRUE(has(answer.err, deleted_text(step))) << answer.err;
  const auto json = nlohmann::json::parse(answer.out);
  EXPECT_EQ(json["good"], true);
  ASSERT_EQ(json["steps"].size(), 1u);
  EXPECT_EQ(json["steps"][0]["folder"], run / "step-00000002");
}

TEST(cli_checkpoint_deleted, a_named_pipe_called_latest_or_config_json_keeps_no_verb_waiting) {
  PrivateFolder run, other;
  write_step(run.path(), 1);
  for (const char* name : {"latest", "config.json"}) {
    fs::remove(run / name);
    ASSERT_EQ(::mkfifo((run / name).c_str(), 0600), 0);
  }
  for (const Arguments& words :
       {Arguments{"ls", run.path()}, Arguments{"show", run.path()}, Arguments{"verify", run.path()},
        Arguments{"export", run.path(), other / "out.pt"}}) {
    Arguments all{"checkpoint"};
    all.insert(all.end(), words.begin(), words.end());
    Command command(trireme(all));
    EXPECT_EQ(command.finish(std::chrono::seconds(5)), 1) << words[0];
    EXPECT_TRUE(has(command.err, run / "latest" + " is a named pipe and not a regular file"))
        << words[0] << ": " << command.err;
  }
  Command train(trireme({"train", "--resume", run.path()}));
  EXPECT_EQ(train.finish(std::chrono::seconds(5)), 2);
  EXPECT_TRUE(has(train.err, run / "config.json" + " is a named pipe")) << train.err;
}

}  // namespace
}  // namespace trireme::testing::checkpoint_deleted_test
