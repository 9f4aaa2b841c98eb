// SPDX-License-Identifier: Apache-2.0
#include "tests/faults/job.h"

#include <gtest/gtest.h>

#include "tests/faults/slurm.h"
#include "tests/support/refusals.h"
#include "trireme/launch/flags/text.h"

// What `trireme job` prints, started as a cluster starts it.
namespace trireme::testing::job_test {
namespace {

namespace fs = std::filesystem;

class faults_job : public ::testing::Test {
 protected:
  void SetUp() override {
    fs::create_directory(work_);
    write(work_ + "/tiny.json", tiny_mlp_with(R"({"training": {"steps": 120}})"));
  }
  void write_secret() const {
    write(folder_ / "secret", std::string(64, 'a'));
    fs::permissions(folder_ / "secret", secret_mode_);
  }
  /// The weights after the same steps of the same ranks, which nobody disturbs.
  std::string calm_run() const {
    write_secret();
    std::vector<std::unique_ptr<Command>> nodes;
    for (const char* node : {"0", "1"})
      nodes.push_back(std::make_unique<Command>(
          trireme({"train", "tiny.json", "--run-dir", work_ + "/calm", "--nnodes=2", "--node-rank",
                   node, "--nproc-per-node=2", "--master-addr=127.0.0.1", "--master-port",
                   std::to_string(port_)}),
          CommandOptions{{{"TRIREME_SECRET_FILE", folder_ / "secret"}}, work_}));
    for (auto& node : nodes) EXPECT_EQ(node->finish(), 0) << node->err;
    return read_file(work_ + "/calm/step-00000120/model.safetensors");
  }
  std::string said(const std::string& out) const {
    return fs::exists(work_ + "/" + out) ? read_file(work_ + "/" + out) : "";
  }

  PrivateFolder folder_{"job"};
  std::string work_ = folder_ / "it's a folder";  // a name that needs quotes
  fs::perms secret_mode_ = fs::perms(0400);
  const int port_ = std::min(free_tcp_port(), 65000);
};

// Twice: by the warning that comes before the time limit, and by the preemption of the whole job.
TEST_F(faults_job, of_slurm_saves_when_it_is_preempted_and_goes_on_to_the_calm_runs_bits) {
  Slurm slurm(2);
  if (!slurm.why().empty()) GTEST_SKIP() << slurm.why();
  const std::string weights = calm_run();

  Environment env = slurm.environment();
  env.insert(kSlowSteps.begin(), kSlowSteps.end());
  env["TMPDIR"] = "/tmp";  // the job outlives the command that submits it
  const auto ask = [&](const Arguments& words) {
    Command command(words, {env, work_});
    EXPECT_EQ(command.finish(), 0) << command.err;
    return command.out;
  };
  const Arguments words = trireme({"job", "slurm", "tiny.json", "--run-dir", "run", "--nnodes", "2",
                                   "--nproc-per-node", "2", "--sbatch=--overcommit", "--submit"});
  std::string id = ask(words);
  ASSERT_FALSE(id.empty());
  id.pop_back();
  const std::string out = "slurm-" + id + ".out";
  const auto state = [&] { return ask({"squeue", "-h", "-j", id, "-t", "all", "-o", "%T"}); };
  const auto wait_for = [&](const std::string& text, int times) {
    return eventually(
        [&] {
          const std::string log = said(out);
          int n = 0;
          for (size_t at = log.find(text); at != std::string::npos; at = log.find(text, at + 1))
            ++n;
          return n >= times;
        },
        seconds(40));
  };

  // A job that is requeued waits two minutes, so that no node takes its new credential for the old
  // one, which it tells by the second of their making.
  const auto start_again = [&] {
    EXPECT_TRUE(eventually([&] { return state() == "PENDING\n"; }, seconds(20))) << said(out);
    ask({"scontrol", "update", "JobId=" + id, "StartTime=now+3"});
  };

  ASSERT_TRUE(wait_for("step:", 1))
      << said(out) << ask({"scontrol", "show", "job", id}) << slurm.log();
  const std::string secret = read_file(work_ + "/run/secret-" + id);
  EXPECT_EQ(secret.size(), 64u);
  ask({"scancel", "-s", "USR1", id});  // what --signal sends, to every step and not to the shell
  start_again();
  ASSERT_TRUE(wait_for("going on after step ", 1))
      << said(out) << ask({"scontrol", "show", "job", id}) << slurm.log();
  const int64_t first = latest_step(work_ + "/run");
  EXPECT_GT(first, 0);
  ask({"scontrol", "requeue", id});
  start_again();
  ASSERT_TRUE(wait_for("going on after step ", 2))
      << said(out) << ask({"scontrol", "show", "job", id}) << slurm.log();
  EXPECT_GT(latest_step(work_ + "/run"), first);
  EXPECT_TRUE(eventually([&] { return state() == "COMPLETED\n"; }, seconds(40)))
      << state() << said(out);
  EXPECT_EQ(latest_step(work_ + "/run"), 120);
  EXPECT_EQ(read_file(work_ + "/run/step-00000120/model.safetensors"), weights);
  std::vector<int64_t> every(120);
  std::iota(every.begin(), every.end(), 1);
  EXPECT_EQ(steps_in(work_ + "/run/metrics.jsonl"), every);  // each once
  EXPECT_FALSE(has(said(out), secret));
  EXPECT_FALSE(fs::exists(work_ + "/run/secret-" + id));

  // A job that its user cancels saves, too, and does not come back.
  fs::remove_all(work_ + "/run");
  id = ask(words);
  id.pop_back();
  const std::string cancelled = "slurm-" + id + ".out";
  ASSERT_TRUE(eventually([&] { return has(said(cancelled), "step:"); }, seconds(30)))
      << said(cancelled);
  ask({"scancel", id});
  EXPECT_TRUE(eventually([&] { return state() == "CANCELLED\n"; }, seconds(20))) << state();
  EXPECT_GT(latest_step(work_ + "/run"), 0) << said(cancelled);
}

/// The words of the container's command in a manifest, as Kubernetes hands them to the program.
Arguments command_of(const std::string& manifest, const Environment& variables) {
  Arguments words;
  std::istringstream in(manifest);
  bool inside = false;
  for (std::string line; std::getline(in, line);) {
    const size_t at = line.find_first_not_of(' ');
    if (at == std::string::npos) continue;
    const std::string text = line.substr(at);
    if (inside && text.rfind("- ", 0) != 0) break;
    if (inside) {
      std::string word = text.substr(2);
      if (word[0] == '"') word = nlohmann::json::parse(word).get<std::string>();
      for (const auto& [name, value] : variables)
        launch::replace_all(word, "$(" + name + ")", value);
      launch::replace_all(word, "$$", "$");
      words.push_back(word);
    }
    inside = inside || text == "command:";
  }
  return words;
}

class faults_job_pods : public faults_job {
 protected:
  /// Two pods of a manifest, with what its operator would set; all names are this host.
  void expect_two_pods_train(const char* kind, const std::function<Environment(int pod)>& variables,
                             const Arguments& more = {}) {
    Arguments printing =
        trireme({"job", "kubernetes", "tiny.json", "--run-dir", work_ + "/run", "--volume",
                 "claim:" + folder_.path(), "--image", "trireme", "--kind", kind, "--nnodes", "2",
                 "--nproc-per-node", "2", "--program", trireme_program(), "--steps", "6"});
    printing.insert(printing.end(), more.begin(), more.end());
    Command printed(printing, {{}, work_});
    ASSERT_EQ(printed.finish(), 0) << printed.err;
    write_secret();
    std::vector<std::unique_ptr<Command>> pods;
    for (int pod = 1; pod >= 0; --pod) {
      Environment env = variables(pod);
      Arguments words = command_of(printed.out, env);
      ASSERT_GT(words.size(), 5u) << printed.out;
      const std::string own = folder_ / "own-" + std::to_string(pod);
      for (std::string& word : words) {
        launch::replace_all(word, "/run/trireme/secret", folder_ / "secret");
        launch::replace_all(word, "/tmp/trireme-secret", own);
        if (word == "/etc/trireme/tiny.json") word = work_ + "/tiny.json";
        if (word == "--master-addr=tiny-0.tiny") {
          word = "--master-addr=127.0.0.1";  // this test has no name service
          words.push_back("--master-port=" + std::to_string(port_));
          break;
        }
      }
      env["TRIREME_SECRET_FILE"] = more.empty() ? folder_ / "secret" : own;
      pods.push_back(std::make_unique<Command>(words, CommandOptions{env, work_}));
    }
    for (auto& pod : pods) EXPECT_EQ(pod->finish(), 0) << pod->err;
    const auto lines = json_lines(work_ + "/run/metrics.jsonl");
    ASSERT_FALSE(lines.empty());
    EXPECT_EQ(lines.front().at("world"), 4);
    EXPECT_EQ(latest_step(work_ + "/run"), 6);
  }
};

TEST_F(faults_job_pods, of_an_indexed_job_train) {
  expect_two_pods_train("job", [](int pod) {
    return Environment{{"JOB_COMPLETION_INDEX", std::to_string(pod)}};
  });
}

// The group may read what is mounted; a launcher would refuse it.
TEST_F(faults_job_pods, that_are_not_roots_copy_the_secret_for_themselves) {
  secret_mode_ = fs::perms(0440);
  expect_two_pods_train("job",
                        [](int pod) {
                          return Environment{{"JOB_COMPLETION_INDEX", std::to_string(pod)}};
                        },
                        {"--user", "1000"});
}

// training-operator's RANK and WORLD_SIZE count pods; with a launcher in them they are no ranks.
TEST_F(faults_job_pods, of_a_PyTorchJob_train) {
  expect_two_pods_train("pytorchjob", [this](int pod) {
    return Environment{{"RANK", std::to_string(pod)},
                       {"WORLD_SIZE", "2"},
                       {"MASTER_ADDR", "127.0.0.1"},
                       {"MASTER_PORT", std::to_string(port_)},
                       {"PYTHONUNBUFFERED", "0"}};
  });
}

TEST_F(faults_job_pods, of_a_TrainJob_train) {
  expect_two_pods_train("trainjob", [this](int pod) {
    return Environment{{"PET_NNODES", "2"},
                       {"PET_NPROC_PER_NODE", "2"},
                       {"PET_NODE_RANK", std::to_string(pod)},
                       {"PET_MASTER_ADDR", "127.0.0.1"},
                       {"PET_MASTER_PORT", std::to_string(port_)},
                       {"JOB_COMPLETION_INDEX", std::to_string(pod)}};
  });
}

// One pod of a PyTorchJob is a launcher, too, though newer operators say WORLD_SIZE=2 of it; and a
// rank that a launcher with PET_NNODES=1:2 started is no launcher.
TEST_F(faults_job_pods, alone_and_with_one_rank_are_taken_for_what_they_are) {
  Command alone(trireme({"train", "tiny.json", "--run-dir", "one", "--nnodes=1",
                         "--nproc-per-node=2", "--steps=6"}),
                {{{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "127.0.0.1"}}, work_});
  EXPECT_EQ(alone.finish(), 0) << alone.err;
  EXPECT_EQ(json_lines(work_ + "/one/metrics.jsonl").front().at("world"), 2);

  write_secret();
  Command elastic(trireme({"train", "tiny.json", "--run-dir", "two", "--steps=6"}),
                  {{{"PET_NNODES", "1:2"},
                    {"PET_RDZV_BACKEND", "c10d"},
                    {"PET_RDZV_ENDPOINT", "127.0.0.1:" + std::to_string(port_)},
                    {"PET_RDZV_CONF", "last_call_timeout=0"},
                    {"PET_MAX_RESTARTS", "1"},
                    {"TRIREME_SECRET_FILE", folder_ / "secret"}},
                   work_});
  EXPECT_EQ(elastic.finish(), 0) << elastic.err;
  EXPECT_EQ(json_lines(work_ + "/two/metrics.jsonl").front().at("world"), 1);
}

}  // namespace
}  // namespace trireme::testing::job_test
