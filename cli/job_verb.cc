// SPDX-License-Identifier: Apache-2.0
#include <cstdio>
#include <filesystem>
#include <string>

#include "cli/sbatch.h"
#include "cli/verbs.h"
#include "trireme/base/check.h"
#include "trireme/config/config.h"
#include "trireme/front/job/job_flags.h"
#include "trireme/front/own_program.h"
#include "trireme/front/refusals.h"
#include "trireme/planner/model_part.h"

namespace trireme {
namespace {

const char kJobHelp[] =
    R"(Print what starts a training job of a configuration on a cluster.

Usage: trireme job slurm CONFIG [CONFIG …] --run-dir DIR [FLAGS] [-- FLAGS OF TRAIN]
       trireme job kubernetes CONFIG [CONFIG …] --run-dir DIR --image IMAGE --volume CLAIM:PATH [FLAGS] [-- FLAGS OF TRAIN]

The job saves when it is told to stop, and goes on from there when it is started again, by the cluster or by hand.
docs/job.md says how.

Examples:
  trireme job slurm examples/gpt.json --run-dir /shared/gpt --nnodes 2 --nproc-per-node 8 --time 12:00:00 | sbatch
  trireme job slurm examples/gpt.json --run-dir /shared/gpt --partition long --submit
  trireme job kubernetes examples/gpt.json --run-dir /runs/gpt --volume runs:/runs --image registry/trireme:1 \
    --nnodes 2 --nproc-per-node 4 | kubectl apply -f -

Flags of both:
  --run-dir DIR          the run's folder, in a file system that all nodes see
  --nnodes N|MIN:MAX     nodes; MIN:MAX: they may come and go [1]
  --nproc-per-node N     ranks of a node [1]
  --cpus-per-rank N      [1]
  --gpus-per-node N      [0]
  --memory SIZE          of a node, as in 64G
  --grace SECONDS        from the warning to the end, for the last step and its save [120]
  --name NAME            of the job [from the configuration's file]
  --program PATH         trireme, as the nodes find it [this program; on Kubernetes trireme, of the image]
  --set KEY=VALUE, --steps N, --max-restarts N, --restart-window SECONDS
                         as trireme train takes them; its other flags stand behind '--'
  -h, --help

Flags of slurm:
  --time TIME, --partition NAME, --account NAME, --qos NAME, --constraint LIST
                         as sbatch takes them
  --sbatch OPTION        any other option of sbatch, as in --sbatch=--exclusive; may be given often
  --submit               give the script to sbatch, and print the job's number in its place

Flags of kubernetes:
  --kind KIND            job: an Indexed Job with a headless Service; pytorchjob: of Kubeflow's training-operator;
                         trainjob: of Kubeflow Trainer [job]
  --image IMAGE          the container image that has trireme in it
  --volume CLAIM:PATH    a PersistentVolumeClaim, and where pods see it; may be given often
  --secret NAME          the Secret with the job's secret under the key 'secret', where there are several nodes
                         [NAME-secret]
  --user UID             whom the container runs as, and its volumes' group [the image's; root, on several nodes]
  --namespace NAME       [kubectl's]

Exit code: 0 printed, 2 usage or configuration; with --submit that of sbatch.
)";

/// Whether the job could begin on every number of nodes that it may have.
void check_on_ranks(const job::JobFlags& flags, bool data_is_here) {
  const Config config = Config::load(ConfigInputs::from(flags.files, flags.sets));
  for (int nodes = flags.job.least_nodes; nodes <= flags.job.nodes; ++nodes) {
    const int ranks = nodes * flags.job.ranks_per_node;
    config.resolve_batches(ranks);
    for (const auto& sentence : refusals_of(config, ranks, data_is_here))
      fail<UsageError>("{}", sentence);
    const std::string fault = fault_of_division(config, ranks);
    check<UsageError>(fault.empty(), "{}", fault);
  }
}

int print(const std::string& text) {
  const bool written =
      std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0;
  check<ResourceError>(written, "cannot write to stdout: {}", errno_text());
  return kExitDone;
}

}  // namespace

int job_main(int argc, char** argv) {
  std::vector<std::string> words = words_of(argc, argv);
  const std::string cluster = words.empty() ? "" : words.front();
  if (cluster == "-h" || cluster == "--help") return print(kJobHelp);
  check<UsageError>(cluster == "slurm" || cluster == "kubernetes",
                    "trireme job {}{}: name the cluster's system first, slurm or kubernetes, as in "
                    "'trireme job slurm examples/gpt.json --run-dir /shared/gpt'",
                    cluster, did_you_mean(cluster, {"slurm", "kubernetes"}));
  words.erase(words.begin());
  const bool slurm = cluster == "slurm";
  const job::JobFlags flags =
      slurm ? job::parse_slurm_flags(words, std::filesystem::current_path().string(), own_program())
            : job::parse_kubernetes_flags(words);
  if (flags.help) return print(kJobHelp);
  check_on_ranks(flags, slurm);
  if (!slurm) return print(job::manifests(flags.job, flags.kubernetes));
  const std::string script = job::slurm_script(flags.job, flags.slurm);
  return flags.submit ? submit(script) : print(script);
}

}  // namespace trireme
