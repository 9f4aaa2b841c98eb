// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>

#include "tests/support/command.h"
#include "tests/support/refusals.h"

namespace trireme::testing::job_test {
namespace {

namespace fs = std::filesystem;

const char kConfig[] = R"({
  "model": {"type": "mlp", "inputs": 16, "hidden": [8], "outputs": 4},
  "data": {"type": "dummy"},
  "train_micro_batch_size_per_gpu": 4,
  "training": {"steps": 6}
})";

/// Programs of Slurm that say what they were given.
class cli_job : public ::testing::Test {
 protected:
  void SetUp() override {
    fs::create_directory(bin_);
    write(folder_ / "tiny.json", kConfig);
  }
  static void write(const std::string& path, const std::string& text) {
    std::ofstream(path, std::ios::binary) << text;
  }
  void program(const std::string& name, const std::string& body) const {
    write(bin_ + "/" + name, "#!/bin/bash\n" + body);
    fs::permissions(bin_ + "/" + name, fs::perms(0755));
  }
  Environment env() const {
    return {{"PATH", bin_ + ":" + std::getenv("PATH")},
            {"SLURM_JOB_ID", "812"},
            {"SLURM_JOB_NUM_NODES", "2"},
            {"SLURM_JOB_NODELIST", "n[1-2]"}};
  }
  Command start(const Arguments& words) const {
    Arguments all = trireme({"job"});
    all.insert(all.end(), words.begin(), words.end());
    return Command(all, {env(), folder_.path()});
  }
  std::string printed(const Arguments& words) const {
    Command job = start(words);
    EXPECT_EQ(job.finish(), 0) << job.err;
    EXPECT_EQ(job.err, "");
    return job.out;
  }
  void expect_refused(const Arguments& words, const std::string& part) const {
    Command job = start(words);
    EXPECT_EQ(job.finish(), 2) << job.out;
    EXPECT_EQ(job.out, "");
    EXPECT_TRUE(has(job.err, part)) << job.err;
    EXPECT_EQ(std::count(job.err.begin(), job.err.end(), '\n'), 1) << job.err;
  }

  PrivateFolder folder_{"job"};
  std::string bin_ = folder_ / "bin";
};

TEST_F(cli_job, help_and_words_that_are_none) {
  for (const Arguments& words :
       std::vector<Arguments>{{"--help"}, {"slurm", "-h"}, {"kubernetes", "--help"}})
    EXPECT_TRUE(has(printed(words), "Usage: trireme job slurm CONFIG")) << words[0];
  expect_refused({}, "slurm or kubernetes");
  expect_refused({"slrum"}, "did you mean slurm?");
  expect_refused({"slurm", "none.json", "--run-dir=x"}, "none.json");
}

TEST_F(cli_job, what_no_number_of_its_nodes_could_train_is_refused_before_it_waits_in_a_queue) {
  expect_refused({"slurm", "tiny.json", "--run-dir=x", "--set", "no.such=1"}, "no.such");
  expect_refused({"slurm", "tiny.json", "--run-dir=x", "--set", "data.type=corpus"}, "corpus");
  expect_refused({"slurm", "tiny.json", "--run-dir=x", "--steps=none"}, "none");
  // 16 samples do not divide by 3 nodes, which a job of 2 to 4 may have.
  expect_refused(
      {"slurm", "tiny.json", "--run-dir=x", "--nnodes=2:4", "--set", "train_batch_size=16"}, "16");
  const Arguments pods{"kubernetes", "tiny.json", "--run-dir=/r/x", "--image=i", "--volume=c:/r"};
  EXPECT_TRUE(has(printed(pods), "kind: Job\n"));
  // What only pods see is not looked for here.
  Arguments elsewhere = pods;
  elsewhere.insert(elsewhere.end(), {"--set", "data.type=mnist", "--set", "data.path=/r/mnist",
                                     "--set", "model.inputs=784", "--set", "model.outputs=10"});
  EXPECT_TRUE(has(printed(elsewhere), "data.path=/r/mnist"));
}

/// The script runs with stand-ins for srun and scontrol: every word arrives as it was given.
TEST_F(cli_job, a_script_hands_hostile_names_on_as_they_are) {
  const std::string odd = folder_ / "it's a \"$(touch pwned)\"\n#SBATCH --uid=0\n`id` \\ *";
  fs::create_directory(odd);
  write(odd + "/c;d.json", kConfig);
  program("scontrol", "[ \"$1\" = show ] && printf 'n1\\nn2\\n'\nexit 0\n");
  program("srun", "while [ \"$1\" != \"$TRIREME\" ]; do shift; done\nprintf '%s\\0' \"$@\" > " +
                      (folder_ / "words") + "\ncat \"$TRIREME_SECRET_FILE\" > " +
                      (folder_ / "secret") + "\nstat -c '%a %s' \"$TRIREME_SECRET_FILE\" > " +
                      (folder_ / "mode") + "\npwd > " + (folder_ / "pwd") + "\nexit 3\n");
  Command job(trireme({"job", "slurm", "c;d.json", "--run-dir", "runs/x y", "--nnodes=2", "--set",
                       "checkpoint.folder=a 'b' $c"}),
              {env(), odd});
  ASSERT_EQ(job.finish(), 0) << job.err;
  Environment with = env();
  with["TRIREME"] = trireme_program();
  Command script({"bash", "-c", job.out}, {with, folder_.path()});
  EXPECT_EQ(script.finish(), 3) << script.err << job.out;
  std::string words = read_file(folder_ / "words");
  std::string expected;
  for (const std::string& word :
       Arguments{trireme_program(), "train", odd + "/c;d.json", "--run-dir", odd + "/runs/x y",
                 "--resume", "auto", "--set", "checkpoint.folder=a 'b' $c", "--nproc-per-node=1",
                 "--shutdown-timeout=115", "--rdzv-id=812", "--nnodes=2", "--master-addr=n1",
                 "--master-port=20812"})
    expected += word + '\0';
  EXPECT_EQ(words, expected);
  EXPECT_EQ(read_file(folder_ / "pwd"), odd + "\n");
  EXPECT_FALSE(fs::exists(odd + "/pwned"));
  // The secret: 256 bits, nobody else's, gone with the script, and in no text.
  EXPECT_EQ(read_file(folder_ / "mode"), "600 64\n");
  EXPECT_FALSE(fs::exists(odd + "/runs/x y/secret-812"));
  const std::string secret = read_file(folder_ / "secret");
  ASSERT_EQ(secret.size(), 64u);
  EXPECT_FALSE(has(script.out + script.err + job.out, secret));
}

TEST_F(cli_job, a_secret_is_not_written_through_somebody_elses_link) {
  program("scontrol", "echo n1\n");
  program("srun", "exit 0\n");
  fs::create_directory(folder_ / "run");
  write(folder_ / "mine", "keep");
  fs::create_symlink(folder_ / "mine", folder_ / "run/secret-812");
  const std::string text = printed({"slurm", "tiny.json", "--run-dir=run", "--nnodes=2"});
  Command script({"bash", "-c", text}, {env(), folder_.path()});
  EXPECT_EQ(script.finish(), 0) << script.err;
  EXPECT_EQ(read_file(folder_ / "mine"), "keep");
}

TEST_F(cli_job, a_job_that_saved_is_put_back_into_the_queue_and_no_other_is) {
  program("scontrol", "echo \"$@\" >> " + (folder_ / "asked") + "\n");
  for (const auto& [code, asked] : {std::pair{75, "requeue 812\n"}, std::pair{0, ""},
                                    std::pair{1, ""}, std::pair{2, ""}, std::pair{143, ""}}) {
    program("srun", "exit " + std::to_string(code) + "\n");
    write(folder_ / "asked", "");
    const std::string text = printed({"slurm", "tiny.json", "--run-dir=run"});
    Command script({"bash", "-c", text}, {env(), folder_.path()});
    EXPECT_EQ(script.finish(), code) << script.err;
    EXPECT_EQ(read_file(folder_ / "asked"), asked) << code;
  }
}

TEST_F(cli_job, submit_gives_sbatch_the_script_and_prints_the_jobs_number) {
  const Arguments words{"slurm", "tiny.json", "--run-dir=run", "--partition=p"};
  const std::string text = printed(words);
  Arguments submitting = words;
  submitting.push_back("--submit");
  program("sbatch", "echo \"$@\" > " + (folder_ / "flags") + "\ncat > " + (folder_ / "script") +
                        "\necho 'sbatch: a warning' >&2\necho '4711;cluster'\n");
  Command job = start(submitting);
  EXPECT_EQ(job.finish(), 0) << job.err;
  EXPECT_EQ(job.out, "4711\n");
  EXPECT_EQ(job.err, "sbatch: a warning\n");
  EXPECT_EQ(read_file(folder_ / "flags"), "--parsable\n");
  EXPECT_EQ(read_file(folder_ / "script"), text);

  // Also one that leaves without reading.
  program("sbatch", "echo 'sbatch: error: invalid partition' >&2\nexit 7\n");
  Command refused = start(submitting);
  EXPECT_EQ(refused.finish(), 7);
  EXPECT_EQ(refused.out, "");
  EXPECT_EQ(refused.err, "sbatch: error: invalid partition\n");
  program("sbatch", "kill -TERM $$\n");
  Command killed = start(submitting);
  EXPECT_EQ(killed.finish(), 128 + SIGTERM);

  Arguments alone = trireme({"job"});
  alone.insert(alone.end(), submitting.begin(), submitting.end());
  Command nowhere(alone, {{{"PATH", folder_ / "nothing"}}, folder_.path()});
  EXPECT_EQ(nowhere.finish(), 2);
  EXPECT_TRUE(has(nowhere.err, "there is no sbatch in PATH")) << nowhere.err;
}

}  // namespace
}  // namespace trireme::testing::job_test
