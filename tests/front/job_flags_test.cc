// SPDX-License-Identifier: Apache-2.0
#include "trireme/front/job/job_flags.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "tests/support/refusals.h"
#include "trireme/base/file.h"

namespace trireme::job::job_flags_test {
namespace {

using trireme::testing::has;
using trireme::testing::refusal;
using Words = std::vector<std::string>;

JobFlags slurm(const Words& more) {
  Words words{"conf/My GPT.json", "--run-dir=runs/x"};
  words.insert(words.end(), more.begin(), more.end());
  return parse_slurm_flags(words, "/home/me", "/opt/bin/trireme");
}

class front_job_flags : public ::testing::Test {
 protected:
  void SetUp() override { write_file_atomic(config_, "{}\n"); }
  JobFlags kubernetes(const Words& more) const {
    Words words{config_, "--run-dir=/runs/x", "--image=r/t:1", "--volume=claim:/runs"};
    words.insert(words.end(), more.begin(), more.end());
    return parse_kubernetes_flags(words);
  }

  PrivateFolder folder_{"job-flags"};
  std::string config_ = folder_ / "a.json";
};

TEST_F(front_job_flags, of_slurm_are_read_and_paths_are_those_of_the_folder) {
  const JobFlags f = slurm({"--nnodes",
                            "2:4",
                            "--nproc_per_node=8",
                            "--cpus-per-rank",
                            "3",
                            "--memory=64G",
                            "--time=1-12",
                            "--partition",
                            "long,short",
                            "--sbatch=--exclusive",
                            "--set",
                            "a=1",
                            "--steps=5",
                            "--max-restarts=2",
                            "--program",
                            "bin/trireme",
                            "--",
                            "--tee",
                            "3",
                            "--force"});
  EXPECT_EQ(f.job.least_nodes, 2);
  EXPECT_EQ(f.job.nodes, 4);
  EXPECT_EQ(f.job.cpus_per_node(), 24);
  EXPECT_EQ(f.job.name, "my-gpt");
  EXPECT_EQ(f.job.run_dir, "/home/me/runs/x");
  EXPECT_EQ(f.job.program, "/home/me/bin/trireme");
  EXPECT_EQ(f.slurm.configs, Words{"/home/me/conf/My GPT.json"});
  EXPECT_EQ(f.slurm.directives, (Words{"--time=1-12", "--partition=long,short", "--exclusive"}));
  EXPECT_EQ(f.job.train_words, (Words{"--steps", "5", "--max-restarts", "2", "--set", "a=1",
                                      "--tee", "3", "--force"}));
  EXPECT_EQ(f.sets, (Words{"a=1", "training.steps=5"}));
  EXPECT_EQ(slurm({"--program=trireme"}).job.program, "trireme");  // of the job's PATH
}

TEST_F(front_job_flags, of_kubernetes_are_read_and_configurations_get_names_of_their_own) {
  const std::string odd = folder_ / "-ä b\n.json", same = folder_ / "sub";
  std::filesystem::create_directory(same);
  write_file_atomic(odd, "odd");
  write_file_atomic(same + "/a.json", "second");
  const JobFlags f = kubernetes({odd, same + "/a.json", "--namespace=ml", "--volume=data:/data/"});
  EXPECT_EQ(f.job.name, "a");
  EXPECT_EQ(f.kubernetes.secret, "a-secret");
  ASSERT_EQ(f.kubernetes.configs.size(), 3u);
  EXPECT_EQ(f.kubernetes.configs[0], (std::pair<std::string, std::string>("a.json", "{}\n")));
  EXPECT_EQ(f.kubernetes.configs[1].first, "config-___b_.json");
  EXPECT_EQ(f.kubernetes.configs[2], (std::pair<std::string, std::string>("2-a.json", "second")));
  EXPECT_EQ(f.kubernetes.volumes[1], (std::pair<std::string, std::string>("data", "/data")));
}

TEST_F(front_job_flags, a_name_comes_from_the_file_and_suits_a_cluster) {
  for (const auto& [file, name] : {std::pair{"7B.json", "job-7b"}, std::pair{"--.json", "job"},
                                   std::pair{"Ä.json", "job"}, std::pair{"a__b.c.json", "a-b-c"}})
    EXPECT_EQ(parse_slurm_flags({std::string("./") + file, "--run-dir=x"}, "/", "t").job.name,
              name);
  const std::string longest = std::string(100, 'a') + ".json";
  EXPECT_EQ(parse_slurm_flags({longest, "--run-dir=x"}, "/", "t").job.name.size(), 40u);
}

TEST_F(front_job_flags, what_sbatch_would_refuse_or_misread_is_refused_in_a_sentence) {
  const std::pair<Words, const char*> rows[] = {
      {{"--nnodes=0"}, "--nnodes=0: write a whole number from 1 to 1024"},
      {{"--nnodes=4:2"}, "the smaller number first"},
      {{"--nnodes=1:x"}, "--nnodes=x"},
      {{"--nproc-per-node=auto"}, "--nproc-per-node=auto: write a whole number"},
      {{"--cpus-per-rank=-1"}, "--cpus-per-rank=-1"},
      {{"--gpus-per-node=many"}, "--gpus-per-node=many"},
      {{"--memory=64"}, "as in 64G"},
      {{"--memory=0G"}, "as in 64G"},
      {{"--memory=6.5G"}, "as in 64G"},
      {{"--grace=5"}, "--grace=5: write a whole number from 10"},
      {{"--grace=70000"}, "to 65535"},
      {{"--time=tomorrow"}, "DAYS-HOURS"},
      {{"--time=1:2:3:4"}, "DAYS-HOURS"},
      {{"--time="}, "DAYS-HOURS"},
      {{"--partition=a b"}, "without blanks"},
      {{"--partition=a\n#SBATCH --uid=0"}, "without blanks"},
      {{"--account=x#y"}, "a directive of sbatch"},
      {{"--qos='x'"}, "a directive of sbatch"},
      {{"--constraint="}, "a directive of sbatch"},
      {{"--name=a b"}, "letters, digits"},
      {{"--name=" + std::string(200'000, 'a')}, "at most 64"},
      {{"--sbatch=exclusive"}, "write an option of sbatch"},
      {{"--sbatch=--comment=\"a\""}, "a directive of sbatch"},
      {{"--sbatch=--nodes=3"}, "that is what --nnodes is for"},
      {{"--sbatch=-n"}, "that is what --nproc-per-node is for"},
      {{"--sbatch=--signal=B:USR1"}, "that is what --grace is for"},
      {{"--sbatch=--no-requeue"}, "could not go on"},
      {{"--image=x"}, "there is no flag --image"},
      {{"--partitio=x"}, "did you mean --partition?"},
      {{"--submit=yes"}, "--submit takes no value"},
      {{"--nnodes"}, "--nnodes needs a value"},
      {{"--set"}, "--set needs a value"},
      {{"--max-restarts=x"}, "--max-restarts=x"},
      {{"--restart-window=60"}, "--max-restarts=N as well"},
      {{"--", "--resume", "auto"}, "goes on from its newest step"},
      {{"--", "--overwrite"}, "would delete the run at each start"},
      {{"--", "--run_dir=y"}, "write it before '--'"},
      {{"--", "--nnodes=3"}, "write it before '--'"},
      {{"--", "--shutdown-timeout=3"}, "follows from --grace"},
      {{"--", "--node-rank=3"}, "is settled by the cluster"},
      {{"--", "--dry-run"}, "starts nothing"},
      {{"--", "b.json"}, "configurations stand before it"},
      {{"--", "--help"}, "goes before '--'"},
      {{"--", "--te=3"}, "there is no flag --te"},
      {{"--", "--local-ranks-filter=3"}, "there is no local rank 3"},
  };
  for (const auto& [words, part] : rows)
    EXPECT_TRUE(has(refusal([&] { slurm(words); }), part))
        << words.front().substr(0, 100) << ": " << refusal([&] { slurm(words); });
  EXPECT_TRUE(
      has(refusal([&] { parse_slurm_flags({"--run-dir=x"}, "/", "t"); }), "name a configuration"));
  EXPECT_TRUE(has(refusal([&] { parse_slurm_flags({"a.json"}, "/", "t"); }), "--run-dir"));
}

TEST_F(front_job_flags, what_kubernetes_would_refuse_or_lose_is_refused_in_a_sentence) {
  const std::pair<Words, const char*> rows[] = {
      {{"--kind=pod"}, "--kind=pod: choose job"},
      {{"--kind=trainjob", "--nnodes=1:2"}, "a TrainJob has one number of nodes"},
      {{"--image=a b"}, "the name of a container image"},
      {{"--image="}, "the name of a container image"},
      {{"--namespace=Ml"}, "small letters"},
      {{"--secret=My_Secret"}, "the name of a Secret"},
      {{"--name=7b"}, "a letter first"},
      {{"--name=a-"}, "no dash at the end"},
      {{"--name=" + std::string(41, 'a')}, "at most 40"},
      {{"--volume=claim"}, "write CLAIM:PATH"},
      {{"--volume=claim:runs"}, "write CLAIM:PATH"},
      {{"--volume=:/x"}, "write CLAIM:PATH"},
      {{"--volume=Claim:/x"}, "write CLAIM:PATH"},
      {{"--volume=other:/runs/../runs/"}, "claim is mounted at /runs already"},
      {{"--volume=c:/a/.."}, "mounted below /"},
      {{"--run-dir=runs/x"}, "the absolute path that pods see"},
      {{"--run-dir=/tmp/x"}, "it lies in no --volume"},
      {{"--run-dir=/runs/../tmp"}, "it lies in no --volume"},
      {{"--run-dir=/runsx"}, "it lies in no --volume"},
      {{"--submit"}, "kubectl apply"},
      {{"--user=root"}, "--user=root: write a whole number from 1"},
      {{"--user=0"}, "--user=0"},
      {{"--partition=x"}, "there is no flag --partition"},
  };
  for (const auto& [words, part] : rows)
    EXPECT_TRUE(has(refusal([&] { kubernetes(words); }), part))
        << words.front() << ": " << refusal([&] { kubernetes(words); });
  EXPECT_TRUE(has(refusal([&] { parse_kubernetes_flags({config_, "--run-dir=/r"}); }), "--image"));
  write_file_atomic(config_, std::string(1'000'000, ' '));
  EXPECT_TRUE(has(refusal([&] { kubernetes({}); }), "a ConfigMap takes"));
}

}  // namespace
}  // namespace trireme::job::job_flags_test
