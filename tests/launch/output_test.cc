// SPDX-License-Identifier: Apache-2.0
#include "trireme/launch/output.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "tests/launch/job_process.h"
#include "trireme/base/file.h"
#include "trireme/launch/process/signal_inbox.h"

namespace trireme::launch::output_test {
namespace {

const char kTalk[] = "echo out$RANK; echo err$RANK >&2; printf tail$RANK";

// LOG_DIR/<id>_<random>/attempt_0/<rank>/<name>
std::string log_of(const PrivateFolder& logs, int rank, const std::string& name) {
  for (auto& job : std::filesystem::directory_iterator(logs.path()))
    return read_file(job.path().string() + "/attempt_0/" + std::to_string(rank) + "/" + name);
  return "no job folder";
}

TEST(launch_output, tee_writes_files_and_prefixed_lines) {
  PrivateFolder logs;
  JobProcess job({"--nproc-per-node=2", "--tee=3", "--log-dir", logs.path()}, kTalk);
  EXPECT_EQ(job.wait(), 0);
  for (const char* line : {"[default0]:out0\n", "[default1]:out1\n", "[default0]:tail0\n"})
    EXPECT_EQ(JobProcess::count(job.out_text, line), 1) << job.out_text;
  EXPECT_EQ(JobProcess::count(job.err_text, "[default1]:err1\n"), 1) << job.err_text;
  EXPECT_EQ(log_of(logs, 0, "stdout.log"), "out0\ntail0");
  EXPECT_EQ(log_of(logs, 1, "stderr.log"), "err1\n");
}

// A worker's SIGCHLD can come after its exit was seen: what it wrote must still be shown.
TEST(launch_output, a_late_sigchld_does_not_cut_the_output_short) {
  PrivateFolder logs;
  JobProcess job([&] {
    SignalInbox inbox({SIGINT});
    RunOptions options = parse_run_options({"--nproc-per-node=1", "--tee=3"});
    Output output(options, logs.path(), "${local_rank}:", 0);
    {
      Output::Ends ends = output.open(0);
      if (::write(ends.out.get(), "last\n", 5) != 5) return 1;
    }
    ::raise(SIGCHLD);
    output.finish(inbox);
    return 0;
  });
  EXPECT_EQ(job.wait(), 0);
  EXPECT_EQ(job.out_text, "0:last\n");
}

TEST(launch_output, redirects_write_files_alone_and_per_rank) {
  PrivateFolder logs;
  JobProcess job({"--nproc-per-node=2", "-r", "1:1", "--log-dir", logs.path(), "--rdzv-id=j7"},
                 kTalk);
  EXPECT_EQ(job.wait(), 0);
  EXPECT_EQ(job.out_text, "out0\ntail0");
  EXPECT_EQ(log_of(logs, 1, "stdout.log"), "out1\ntail1");
  EXPECT_NE(job.err_text.find("err1\n"), std::string::npos);
  auto folder = std::filesystem::directory_iterator(logs.path())->path().filename().string();
  EXPECT_EQ(folder.substr(0, 3), "j7_");
}

TEST(launch_output, ranks_that_the_filter_leaves_out_write_to_files_only) {
  PrivateFolder logs;
  JobProcess job(
      {"--nproc-per-node=2", "-t1", "--local-ranks-filter=1", "--role=w", "--log-dir", logs.path()},
      kTalk);
  EXPECT_EQ(job.wait(), 0);
  EXPECT_EQ(job.out_text, "[w1]:out1\n[w1]:tail1\n");
  EXPECT_EQ(JobProcess::count(job.err_text, "err0"), 0) << job.err_text;
  EXPECT_EQ(log_of(logs, 0, "stdout.log"), "out0\ntail0");
}

TEST(launch_output, much_output_arrives_whole) {
  PrivateFolder logs;
  JobProcess job(
      {"--nproc-per-node=1", "--tee=1", "--log-dir", logs.path()},
      "i=0; while [ $i -lt 60000 ]; do echo line $i of much output here; i=$((i+1)); done");
  EXPECT_EQ(job.wait(std::chrono::seconds(60)), 0);
  EXPECT_EQ(JobProcess::count(job.out_text, "\n"), 60000);
  EXPECT_NE(job.out_text.find("[default0]:line 59999 of much output here\n"), std::string::npos);
}

TEST(launch_output, a_failing_workers_error_file_stays_in_the_log_folder) {
  PrivateFolder logs;
  JobProcess job({"--nproc-per-node=1", "--log-dir", logs.path()},
                 R"(echo '{"message": "it broke"}' > $TORCHELASTIC_ERROR_FILE; exit 1)");
  EXPECT_EQ(job.wait(), 1);
  EXPECT_NE(job.err_text.find("error_file: " + logs.path()), std::string::npos) << job.err_text;
  EXPECT_EQ(log_of(logs, 0, "error.json"), "{\"message\": \"it broke\"}\n");
}

TEST(launch_output, the_prefix_template_is_torchs) {
  EXPECT_EQ(line_prefix("${role_name}/${rank}.${local_rank}> ", {"w"}, 3, 11), "w/11.3> ");
}

}  // namespace
}  // namespace trireme::launch::output_test
