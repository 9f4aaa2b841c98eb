// SPDX-License-Identifier: Apache-2.0
#include "trireme/front/job/slurm_script.h"

#include <fmt/core.h>

#include "trireme/front/job/shell_words.h"

namespace trireme::job {
namespace {

std::string directives(const JobSpec& job, const SlurmSpec& slurm) {
  std::vector<std::string> lines{
      "--job-name=" + job.name,
      job.elastic() ? fmt::format("--nodes={}-{}", job.least_nodes, job.nodes)
                    : fmt::format("--nodes={}", job.nodes),
      "--ntasks-per-node=1",
      fmt::format("--cpus-per-task={}", job.cpus_per_node()),
  };
  if (job.gpus_per_node > 0) lines.push_back(fmt::format("--gpus-per-node={}", job.gpus_per_node));
  if (!job.memory.empty()) lines.push_back("--mem=" + job.memory);
  lines.insert(lines.end(), slurm.directives.begin(), slurm.directives.end());
  lines.push_back(fmt::format("--signal=USR1@{}", job.grace));
  lines.push_back("--requeue");
  lines.push_back("--open-mode=append");
  if (job.elastic()) lines.push_back("--no-kill");
  std::string text;
  for (const std::string& line : lines) text += "#SBATCH " + line + "\n";
  return text;
}

/// noclobber: a file or a link that somebody put there is not written through.
const char kMakeSecret[] = R"(
# What the launchers of the nodes show each other. Nobody else may read it.
export TRIREME_SECRET_FILE={RUN}/secret-"$SLURM_JOB_ID"
trap 'rm -f -- "$TRIREME_SECRET_FILE"' EXIT
rm -f -- "$TRIREME_SECRET_FILE"
(umask 077; set -o noclobber; od -An -v -tx1 -N32 /dev/urandom | tr -d ' \n' > "$TRIREME_SECRET_FILE") || exit 2

first=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | sed -n 1p)
port=$((20000 + SLURM_JOB_ID % 10000))
)";

const char kEnd[] = R"(code=$?
# 75: a step is saved, and somebody asked the job to stop. A cancelled job does not come to this line: its shell is ended, too.
if [ "$code" -eq 75 ]; then scontrol requeue "$SLURM_JOB_ID"; fi
exit "$code"
)";

/// A flag and its value share a line.
std::string lines_of(const std::vector<std::string>& words) {
  std::string text;
  bool value_follows = false;
  for (const std::string& word : words) {
    const bool is_flag = word.rfind("--", 0) == 0;
    if (!text.empty()) text += value_follows && !is_flag ? " " : "\n  ";
    text += word;
    value_follows = is_flag && word.find('=') == std::string::npos;
  }
  return text;
}

/// Words of bash: those of ours may hold its variables.
std::vector<std::string> command(const JobSpec& job, const SlurmSpec& slurm) {
  std::vector<std::string> words{shell_word(job.program) + " train"};
  for (const std::string& config : slurm.configs) words.push_back(shell_word(config));
  words.insert(words.end(), {"--run-dir", shell_word(job.run_dir), "--resume", "auto"});
  for (const std::string& word : job.train_words) words.push_back(shell_word(word));
  words.push_back(fmt::format("--nproc-per-node={}", job.ranks_per_node));
  words.push_back(fmt::format("--shutdown-timeout={}", job.shutdown_timeout()));
  if (job.nodes == 1) {
    words.push_back("--nnodes=1");
    return words;
  }
  words.push_back("--rdzv-id=\"$SLURM_JOB_ID\"");
  if (job.elastic()) {
    // Slurm may have given fewer than the most, and gives no more later.
    words.push_back(fmt::format("--nnodes={}:\"$SLURM_JOB_NUM_NODES\"", job.least_nodes));
    words.insert(words.end(), {"--rdzv-backend=c10d", "--rdzv-endpoint=\"$first:$port\""});
  } else {
    words.push_back(fmt::format("--nnodes={}", job.nodes));
    words.insert(words.end(), {"--master-addr=\"$first\"", "--master-port=\"$port\""});
  }
  return words;
}

}  // namespace

std::string slurm_script(const JobSpec& job, const SlurmSpec& slurm) {
  std::string text =
      "#!/bin/bash\n"
      "# Printed by trireme job slurm: a launcher on each node starts its ranks and watches "
      "them.\n" +
      directives(job, slurm);
  text += fmt::format("\ncd -- {} || exit 2\nmkdir -p -- {} || exit 2\n", shell_word(slurm.folder),
                      shell_word(job.run_dir));
  if (job.needs_secret()) {
    std::string secret = kMakeSecret;
    const std::string place = "{RUN}";
    secret.replace(secret.find(place), place.size(), shell_word(job.run_dir));
    text += secret;
  }
  text += "\ncommand=(";
  text += lines_of(command(job, slurm));
  text += fmt::format(
      ")\nsrun --ntasks=\"$SLURM_JOB_NUM_NODES\" --ntasks-per-node=1 --cpus-per-task={} "
      "--kill-on-bad-exit=0 --wait=0{} \"${{command[@]}}\"\n",
      job.cpus_per_node(), job.elastic() ? " --no-kill" : "");
  return text + kEnd;
}

}  // namespace trireme::job
