// SPDX-License-Identifier: Apache-2.0
#include "trireme/front/train_front.h"

#include <signal.h>
#include <stdlib.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>

#include "trireme/base/check.h"
#include "trireme/base/fd.h"
#include "trireme/base/log.h"
#include "trireme/base/process/flight_variables.h"
#include "trireme/config/sections/checkpoint.h"
#include "trireme/config/sections/elastic.h"
#include "trireme/config/sections/model.h"
#include "trireme/config/sections/zero.h"
#include "trireme/front/claims.h"
#include "trireme/front/host_memory.h"
#include "trireme/front/refusals.h"
#include "trireme/front/run_folder.h"
#include "trireme/front/start_ranks.h"
#include "trireme/front/train_flags.h"
#include "trireme/front/words.h"
#include "trireme/launch/flags/options.h"
#include "trireme/launch/run_lock.h"
#include "trireme/launch/sealed_text.h"
#include "trireme/launch/worker_env.h"
#include "trireme/planner/model_table.h"
#include "trireme/rendezvous/generations.h"
#include "trireme/rendezvous/rank_env.h"

namespace trireme {
namespace {

namespace fs = std::filesystem;

/// "-" is standard output. Workers may have another working folder one day: absolute.
std::string metrics_place(const std::string& given) {
  return given == "-" ? given : fs::absolute(given).string();
}

/// Says what is being built, which may take minutes.
void announce(const Config& config, const MemoryCheck& memory) {
  if (!memory.known) return;
  const bool fits = memory.verdict.fit == MemoryVerdict::Fit::fits;
  if (!fits) log_warn("{}. If it fails: {}", memory.verdict.text, memory_advice(memory.plan));
  log_info("building {} with {} parameters{}", config.section<ModelSection>().type,
           count_text(memory.plan.model.numel()), fits ? "; " + memory.verdict.text : "");
}

/// What is wrong with a configuration on so many ranks; UsageError.
Batches check_on_ranks(const TrainFront& front, const Config& config, int ranks) {
  Batches batches = config.resolve_batches(ranks);
  for (const auto& sentence : refusals_of(config, ranks, front.built_in_model))
    fail<UsageError>("{}", sentence);
  const std::string fault = front.fault ? front.fault(config, ranks) : "";
  check<UsageError>(fault.empty(), "{}", fault);
  return batches;
}

/// Somebody must start another rank in the place of one that is lost.
void check_elastic(const Config& config, const launch::RunOptions& options, bool is_rank) {
  if (!config.section<ElasticSection>().in_process()) return;
  const std::string at =
      fmt::format("elastic.mode is in_process ({})", config.origin("elastic.mode"));
  if (is_rank)
    check<UsageError>(!launch::process_env(kMemberVariable).value_or("").empty(),
                      "{}: nobody would start another rank in the place of one that is lost. Start "
                      "the ranks with `trireme train`, or with `trireme run`, and "
                      "--max-restarts",
                      at);
  else
    check<UsageError>(options.max_restarts > 0,
                      "{}, and --max-restarts is 0: say how many ranks may be lost", at);
}

/// What a rank has alone is lost with it, and its launcher keeps no whole snapshot where there are
/// several of them.
void check_shards_on_nodes(const Config& config, int ranks) {
  if (!config.section<ElasticSection>().in_process()) return;
  const int64_t stage = config.section<ZeroSection>().stage;
  check<UsageError>(stage == 0 || config.resolve_sharding(ranks).dp_shard < ranks,
                    "elastic.mode is in_process ({}), and with zero_optimization.stage {} on "
                    "several nodes no rank has what another one loses: set parallelism.dp_shard "
                    "below {}, so that ranks have the same shards, or elastic.mode restart, with "
                    "which all start again from the memory of the nodes",
                    config.origin("elastic.mode"), stage, ranks);
}

/// Where a launcher is asked for by --nnodes, also 1, what srun, mpirun or an operator of
/// Kubernetes says counts launchers (tasks, pods), unless another launcher started this process as
/// a rank.
RankEnv who_am_i(const launch::RunOptions& options) {
  RankEnv self = read_rank_env();
  return options.nodes_given && !self.has_agent ? RankEnv{} : self;
}

/// One node of several. Each of its ranks is this command again, as under torchrun, srun or mpirun:
/// it reads the configuration by itself, and rank 0 takes the run folder.
int start_node(const TrainFront& front, launch::RunOptions options, const TrainFlags& flags,
               const Config& config, const std::vector<std::string>& words,
               const std::string& run) {
  check<UsageError>(!flags.run_dir.empty() || (flags.resume && !flags.resume_auto),
                    "{}: --nnodes={}: name the run folder with --run-dir, in a file system that "
                    "all nodes see, so that all ranks use one",
                    front.name, options.nodes);
  options.neighbour_copies = config.section<CheckpointSection>().neighbour;
  check<UsageError>(
      !options.neighbour_copies || options.come_and_go,
      "{}: checkpoint.neighbour is true, and a job of --nnodes={} ends with the first "
      "host that dies: say --nnodes=MIN:MAX, so that it goes on, or set "
      "checkpoint.neighbour to false",
      front.name, options.nodes);
  // Hosts that are cut off from each other learn there which of them go on.
  if (options.come_and_go && options.claims.empty())
    options.claims =
        fs::absolute(run).lexically_normal().string() + "/" + launch::kRunGenerationName;
  std::vector<std::string> command = front.own_command();
  command.insert(command.end(), words.begin(), words.end());
  return start_ranks(options, command, launch::FailureReport::one_line,
                     [&](const std::vector<int>& workers_of_nodes) {
                       int ranks = 0;
                       for (int workers : workers_of_nodes) ranks += workers;
                       check_on_ranks(front, config, ranks);
                       if (workers_of_nodes.size() > 1) check_shards_on_nodes(config, ranks);
                     });
}

}  // namespace

int train_front(const TrainFront& front, int argc, char** argv) {
  ::signal(SIGPIPE, SIG_IGN);  // a reader that leaves (| head) does not end a run, nor its workers
  std::vector<std::string> rest;
  auto launch_options = launch::extract_run_options(words_of(argc, argv), &rest);
  TrainFlags flags = parse_train_flags(front, rest);
  if (flags.help) {
    std::fputs(train_help(front).c_str(), stdout);
    return kExitDone;
  }

  const RankEnv self = who_am_i(launch_options);
  // A launcher (torchrun, `trireme run`) starts its ranks again: they go on with what they began.
  const bool is_rank = self.world_size > 1 || (self.has_agent && launch_options.nodes > 1);
  const bool joins = is_rank && comes_later();
  if ((self.attempt > 0 || joins) && !flags.resume && !flags.run_dir.empty())
    flags.resume = flags.resume_auto = true, flags.overwrite = false;
  flags.started_again = self.attempt > 0 && ::getenv("TRIREME_CLAIMS");
  const Resume resume = what_to_resume(front, flags);
  check<UsageError>(!flags.files.empty(), "{}: name a configuration, as in '{}'", front.name,
                    front.example);
  if (!flags.metrics.empty())
    flags.sets.push_back("monitor.metrics=" + nlohmann::json(metrics_place(flags.metrics)).dump());

  // What is wrong with the configuration is said here, once, and not by every rank.
  const Config config = with_absolute_steps(front, flags, resume);
  // Under mpirun or srun this process is a rank already: it becomes its worker and starts nobody.
  check_elastic(config, launch_options, is_rank);
  if (launch_options.nodes > 1 && !is_rank)
    return start_node(front, launch_options, flags, config, rest,
                      flags.run_dir.empty() ? resume.run : flags.run_dir);
  check<UsageError>(
      !config.section<CheckpointSection>().neighbour ||
          (is_rank && !launch::process_env(launch::kNeighbourVariable).value_or("").empty()),
      "{}: checkpoint.neighbour is true, and {}: set it to false", front.name,
      is_rank ? "the launcher of these ranks makes no copies on other hosts; 'trireme train "
                "--nnodes=MIN:MAX' does"
              : "one host has no other to copy to");
  check<UsageError>(!is_rank || !flags.run_dir.empty() || (flags.resume && !flags.resume_auto),
                    "{}: this process is rank {} of {} ({}): name the run folder with "
                    "--run-dir, so that all ranks use one",
                    front.name, self.rank, self.world_size, self.source);
  const int ranks = is_rank ? self.world_size : launch_options.nproc_per_node;
  const Batches batches = check_on_ranks(front, config, ranks);
  const DeviceAnswer device =
      find_device(config, {.first = is_rank ? self.local_rank : 0, .ranks = is_rank ? 1 : ranks},
                  front.ask_device);
  check<UsageError>(device.refusal.empty(), "{}", device.refusal);
  if (!batches.note.empty()) log_info("{}", batches.note);
  std::vector<std::string> command = front.rank_command();

  MemoryCheck memory;
  // The memory of a device is known to its ranks alone.
  if (front.built_in_model && device.kind == "cpu")
    memory = check_memory(config, ranks, is_rank ? std::max(1, self.local_world_size) : ranks);
  check<ResourceError>(!memory.impossible() || flags.force, "{}", memory.refusal());

  // A rank of somebody else's launcher leaves the folder to rank 0.
  std::optional<Claims> claims;
  std::string run_dir = flags.run_dir.empty() ? resume.run : flags.run_dir;
  if (launch_options.dry_run) {
    if (run_dir.empty()) run_dir = runs_of(flags.files[0]) + "/<UTC time>";
  } else if (self.rank == 0 && !joins) {
    claims.emplace(claim(front, flags, resume, config));
    run_dir = claims->run.path();
    log_info("run folder {}", run_dir);
    announce(config, memory);
  }
  if (!launch_options.dry_run) run_dir = fs::absolute(run_dir).lexically_normal().string();

  UniqueFd sealed;
  if (!launch_options.dry_run)
    sealed = launch::seal_text("trireme-config", config.to_json(&batches));
  command.insert(command.end(),
                 {"--config-fd", sealed ? std::to_string(sealed.get()) : "<descriptor>",
                  "--run-dir", run_dir});
  if (flags.resume) command.insert(command.end(), {"--resume", resume.from});
  if (goes_on(flags, resume) && !resume.saved_in.empty())
    command.insert(command.end(), {"--saved-in", resume.saved_in});
  // Ranks that start again tell by it whether the job has saved a step of its own.
  if (const auto latest = flags.resume ? latest_beside(resume.from) : std::nullopt)
    command.insert(command.end(), {"--latest-before", *latest});
  launch_options.flight_dir = run_dir + "/flight";
  if (is_rank && !launch_options.dry_run) {
    if (launch::process_env(kJobFlightVariable).value_or("").empty())
      ::setenv(kJobFlightVariable, launch_options.flight_dir.c_str(), 1);
    if (claims) claims->hand_over(&command);
    become(command);
  }
  if (claims) claims->pass_on();
  int code = kExitFailed;
  try {
    code = start_ranks(launch_options, command, launch::FailureReport::one_line);
  } catch (...) {
    if (claims) claims->remove_unbegun();
    throw;
  }
  if (claims && code != kExitDone) claims->remove_unbegun();
  return code;
}

}  // namespace trireme
