// SPDX-License-Identifier: Apache-2.0
#include "trireme/front/job/slurm_script.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/support/command.h"
#include "tests/support/paths.h"
#include "tests/support/refusals.h"
#include "trireme/base/file.h"

namespace trireme::job::slurm_script_test {
namespace {

using trireme::testing::Command;
using trireme::testing::has;

JobSpec two_nodes() {
  JobSpec job;
  job.name = "gpt";
  job.program = "/opt/trireme/bin/trireme";
  job.run_dir = "/shared/gpt";
  job.nodes = job.least_nodes = 2;
  job.ranks_per_node = 8;
  job.train_words = {"--set", "checkpoint.every_minutes=10"};
  return job;
}
SlurmSpec slurm() { return {{"/home/me/gpt.json"}, "/home/me", {"--time=12:00:00"}}; }

TEST(front_slurm_script, of_two_nodes_is_this_text) {
  JobSpec job = two_nodes();
  job.cpus_per_rank = 4;
  job.gpus_per_node = 8;
  job.memory = "64G";
  EXPECT_EQ(slurm_script(job, slurm()), R"sh(#!/bin/bash
# Printed by trireme job slurm: a launcher on each node starts its ranks and watches them.
#SBATCH --job-name=gpt
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=32
#SBATCH --gpus-per-node=8
#SBATCH --mem=64G
#SBATCH --time=12:00:00
#SBATCH --signal=USR1@120
#SBATCH --requeue
#SBATCH --open-mode=append

cd -- /home/me || exit 2
mkdir -p -- /shared/gpt || exit 2

# What the launchers of the nodes show each other. Nobody else may read it.
export TRIREME_SECRET_FILE=/shared/gpt/secret-"$SLURM_JOB_ID"
trap 'rm -f -- "$TRIREME_SECRET_FILE"' EXIT
rm -f -- "$TRIREME_SECRET_FILE"
(umask 077; set -o noclobber; od -An -v -tx1 -N32 /dev/urandom | tr -d ' \n' > "$TRIREME_SECRET_FILE") || exit 2

first=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | sed -n 1p)
port=$((20000 + SLURM_JOB_ID % 10000))

command=(/opt/trireme/bin/trireme train
  /home/me/gpt.json
  --run-dir /shared/gpt
  --resume auto
  --set checkpoint.every_minutes=10
  --nproc-per-node=8
  --shutdown-timeout=115
  --rdzv-id="$SLURM_JOB_ID"
  --nnodes=2
  --master-addr="$first"
  --master-port="$port")
srun --ntasks="$SLURM_JOB_NUM_NODES" --ntasks-per-node=1 --cpus-per-task=32 --kill-on-bad-exit=0 --wait=0 "${command[@]}"
code=$?
# 75: a step is saved, and somebody asked the job to stop. A cancelled job does not come to this line: its shell is ended, too.
if [ "$code" -eq 75 ]; then scontrol requeue "$SLURM_JOB_ID"; fi
exit "$code"
)sh");
}

TEST(front_slurm_script, stands_on_the_page_as_it_is_printed) {
  JobSpec job = two_nodes();
  job.gpus_per_node = 8;
  job.train_words = {};
  EXPECT_TRUE(
      has(read_file(trireme::testing::source_path("/docs/job.md")), slurm_script(job, slurm())));
}

TEST(front_slurm_script, of_one_node_needs_no_secret_and_no_host) {
  JobSpec job = two_nodes();
  job.nodes = job.least_nodes = 1;
  const std::string text = slurm_script(job, slurm());
  EXPECT_TRUE(has(text, "#SBATCH --nodes=1\n")) << text;
  EXPECT_TRUE(has(text, "--nnodes=1)\nsrun ")) << text;
  for (const char* absent : {"SECRET", "scontrol show", "--master-addr", "--no-kill"})
    EXPECT_FALSE(has(text, absent)) << text;
}

TEST(front_slurm_script, of_nodes_that_come_and_go_survives_a_node_and_meets_under_c10d) {
  JobSpec job = two_nodes();
  job.nodes = 4;
  job.grace = 300;
  const std::string text = slurm_script(job, slurm());
  for (const char* part :
       {"#SBATCH --nodes=2-4\n", "#SBATCH --no-kill\n", "#SBATCH --signal=USR1@300\n",
        " --no-kill ", "--nnodes=2:\"$SLURM_JOB_NUM_NODES\"", "--rdzv-backend=c10d\n",
        "--rdzv-endpoint=\"$first:$port\"", "--shutdown-timeout=295\n"})
    EXPECT_TRUE(has(text, part)) << part << text;
  EXPECT_FALSE(has(text, "--master-addr")) << text;
}

/// Bash reads each, and no part of a name becomes a line of its own.
TEST(front_slurm_script, of_hostile_names_is_a_script_with_the_same_lines) {
  const std::string name = "/a b'\"$(touch x)`id`\n#SBATCH --uid=0\n;\\!*";
  JobSpec job = two_nodes();
  const auto lines = [](const std::string& text) {
    return std::count(text.begin(), text.end(), '\n');
  };
  const auto calm = lines(slurm_script(job, slurm()));
  job.run_dir = job.program = name;
  job.train_words = {"--set", name};
  const std::string text = slurm_script(job, {{name}, name, {}});
  EXPECT_EQ(lines(text), calm - 1);  // without --time
  EXPECT_FALSE(has(text, "\n#SBATCH --uid")) << text;
  Command bash({"bash", "-n", "-c", text});
  EXPECT_EQ(bash.finish(), 0) << bash.err << text;
}

}  // namespace
}  // namespace trireme::job::slurm_script_test
