// SPDX-License-Identifier: Apache-2.0
// `trireme train --nnodes` with snapshots in memory: each host holds what its ranks had, and ranks
// that start again get the rest from the other hosts.
#include <gtest/gtest.h>

#include <csignal>
#include <memory>

#include "tests/faults/job_on_hosts.h"
#include "trireme/base/file.h"
#include "trireme/checkpoint/steps/run_folder/folders.h"

namespace trireme::testing::restart_memory_hosts_test {
namespace {

namespace fs = std::filesystem;

constexpr Duration kPatience = seconds(120);

class faults_restart_memory_hosts : public JobOnHosts {
 protected:
  faults_restart_memory_hosts() : JobOnHosts(3) {}

  Arguments words(const std::string& run, const Arguments& more) const {
    Arguments all{"train",     write(folder_ / "config.json", kTinyMlp),
                  "--run-dir", run,
                  "--steps",   std::to_string(steps_)};
    for (const char* set : {"checkpoint.snapshot_every=5", "steps_per_print=1000000",
                            "optimizer.type=AdamW", R"(optimizer.params={"lr":0.01})"})
      all.insert(all.end(), {"--set", set});
    all.insert(all.end(), more.begin(), more.end());
    return trireme(all);
  }
  std::unique_ptr<Command> launcher(int host, const Arguments& more,
                                    Environment environment) const {
    Arguments flags{"--max-restarts", "3", "--nproc-per-node", "1",
                    "--local-addr=" + Hosts::address(host)};
    flags.insert(flags.end(), more.begin(), more.end());
    environment["TRIREME_SECRET_FILE"] = folder_ / "secret";
    environment["TRIREME_FILE_FAULTS"] = "only=" + run_ + "/step-,count=" + calls(host);
    return std::make_unique<Command>(hosts_.on(host, words(run_, flags)),
                                     CommandOptions{environment, folder_.path()});
  }
  Arguments fixed(int host, Arguments more = {}) const {
    more.insert(more.end(), {"--nnodes=2", "--node-rank=" + std::to_string(host),
                             "--master-addr=" + Hosts::address(0)});
    return more;
  }
  /// Two of at most three hosts, and at least two. A third takes the place of one that is lost: its
  /// launcher is killed, and with it all of its ranks.
  void lose_a_host(const Arguments& sets) {
    steps_ = 40;
    Arguments words{"--nnodes=2:3", "--rdzv-backend=c10d",
                    "--rdzv-endpoint=" + Hosts::address(0) + ":29400",
                    "--rdzv-conf=last_call_timeout=0"};
    for (const char* set : {"zero_optimization.stage=2", "train_batch_size=8", "steps_per_print=1"})
      words.insert(words.end(), {"--set", set});
    words.insert(words.end(), sets.begin(), sets.end());
    const Environment slow{{"TRIREME_FAILPOINTS", "train.step=sleep(50)"}};
    zero_ = launcher(0, words, slow);
    const auto one = launcher(1, words, slow);
    ASSERT_TRUE(zero_->wait_for("step: 23/40", kPatience)) << zero_->err << zero_->out << one->err;
    one->send(SIGKILL);
    ASSERT_TRUE(zero_->wait_for("start again on the nodes that are there", kPatience))
        << zero_->err;
    const auto two = launcher(2, words, slow);
    ASSERT_EQ(zero_->finish(kPatience), 0) << zero_->err << two->err;
    ASSERT_EQ(two->finish(kPatience), 0) << two->err;
    expect_end_of_a_calm_run({"--set", "train_batch_size=8", "--set", "zero_optimization.stage=2"});
  }
  std::string calls(int host) const { return folder_ / ("calls" + std::to_string(host)); }
  int reads() const {
    int n = 0;
    for (int host : {0, 1, 2}) {
      std::ifstream in(calls(host));
      for (std::string line; std::getline(in, line);)
        for (const char* kind : {"\tread\t", "\tpread\t", "\tpread_cached\t", "\tmap\t"})
          n += line.find(kind) != std::string::npos;
    }
    return n;
  }
  void expect_end_of_a_calm_run(Arguments more) const {
    more.insert(more.end(), {"--nproc-per-node", "2"});
    Command calm(words(folder_ / "calm", more), {{}, folder_.path()});
    ASSERT_EQ(calm.finish(kPatience), 0) << calm.err;
    const std::string name = "/" + step_folder_name(steps_);
    size_t files = 0;
    for (const auto& entry : fs::directory_iterator(folder_ / "calm" + name)) {
      if (entry.path().extension() != ".safetensors") continue;
      ++files;
      const std::string file = name + "/" + entry.path().filename().string();
      EXPECT_TRUE(read_file(run_ + file) == read_file(folder_ / "calm" + file)) << file;
    }
    EXPECT_GT(files, 0u);
  }
  static int count(const std::string& text, const std::string& part) {
    int n = 0;
    for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++n;
    return n;
  }
  static std::string from_memory(int step) {
    return "going on after step " + std::to_string(step) +
           ", from the memory of the workers before";
  }

  const std::string run_ = folder_ / "run";
  int steps_ = 20;
  std::unique_ptr<Command> zero_;
};

}  // namespace

TEST_F(faults_restart_memory_hosts, no_byte_of_a_checkpoint_is_read_and_the_bits_are_a_calm_runs) {
  // Its 8th step in each attempt: steps 8, 13 and 18.
  const Environment dies{{"TRIREME_FAILPOINTS", "train.step@8#1=kill"}};
  const Arguments zero_2{"--set", "zero_optimization.stage=2"};
  const auto zero = launcher(0, fixed(0, zero_2), {}), one = launcher(1, fixed(1, zero_2), dies);
  ASSERT_EQ(zero->finish(kPatience), 0) << zero->err << one->err;
  ASSERT_EQ(one->finish(kPatience), 0) << one->err;
  for (int step : {5, 10, 15})
    EXPECT_EQ(count(zero->err, from_memory(step)), 1) << step << zero->err;
  EXPECT_EQ(count(one->err, "start again"), 3) << one->err;
  EXPECT_EQ(reads(), 0);
  EXPECT_TRUE(zero->left_nothing());
  EXPECT_TRUE(one->left_nothing());
  expect_end_of_a_calm_run(zero_2);
}

TEST_F(faults_restart_memory_hosts, a_host_that_dies_costs_no_read_and_another_takes_its_place) {
  ASSERT_NO_FATAL_FAILURE(lose_a_host({"--set", "checkpoint.neighbour=true"}));
  // Snapshots are 0.25 s apart: which was the last one that was copied is a matter of milliseconds.
  int times = 0;
  for (int step : {15, 20, 25}) times += count(zero_->err, from_memory(step));
  EXPECT_EQ(times, 1) << zero_->err;
  EXPECT_EQ(reads(), 0);
}

TEST_F(faults_restart_memory_hosts, without_copies_a_host_that_dies_costs_a_read_of_the_disk) {
  ASSERT_NO_FATAL_FAILURE(lose_a_host({"--set", "checkpoint.every=10"}));
  EXPECT_EQ(count(zero_->err, "from the memory of the workers before"), 0) << zero_->err;
  EXPECT_EQ(count(zero_->err, "going on after step 20"), 1) << zero_->err;
  EXPECT_GT(reads(), 0);
}

}  // namespace trireme::testing::restart_memory_hosts_test
