// SPDX-License-Identifier: Apache-2.0
#include "trireme/launch/launch.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include <filesystem>
#include <memory>
#include <optional>

#include "trireme/base/check.h"
#include "trireme/base/file.h"
#include "trireme/base/log.h"
#include "trireme/checkpoint/steps/snapshot/handed_on.h"
#include "trireme/checkpoint/steps/snapshot/restart_memory.h"
#include "trireme/launch/hang/hang_guard.h"
#include "trireme/launch/job_plan.h"
#include "trireme/launch/nodes/compare_nodes.h"
#include "trireme/launch/nodes/nodes.h"
#include "trireme/launch/nodes/patience.h"
#include "trireme/launch/nodes/shared_steps.h"
#include "trireme/launch/process/keeper.h"
#include "trireme/launch/process/leftovers.h"
#include "trireme/launch/process/process.h"
#include "trireme/launch/process/signal_inbox.h"
#include "trireme/launch/restart_budget.h"
#include "trireme/launch/supervisor.h"
#include "trireme/net/secret.h"

namespace trireme::launch {
namespace {

std::string run_id(const RunOptions& options) {
  return options.standalone ? net::random_token() : options.rdzv_id;
}

struct LogFolder {
  std::string path;  // of all attempts
  bool stays = false;
  std::string of_attempt(int restarts) const {
    return path + "/attempt_" + std::to_string(restarts);
  }
};

// DIR/<id>_<random>, with attempt_0, attempt_1, … in it, as torchrun has it.
LogFolder make_log_folder(const RunOptions& options, const std::string& id,
                          const PrivateFolder& own) {
  bool wants_files = options.redirects.any() || options.tee.any();
  if (options.log_dir.empty() && !wants_files) return {own.path(), false};
  std::string base = options.log_dir;
  if (base.empty()) {
    const char* temporary = ::getenv("TMPDIR");
    base = std::string(temporary && *temporary ? temporary : "/tmp") + "/trireme_logs";
  }
  LogFolder folder{base + "/" + id + "_" + net::random_token().substr(0, 8), true};
  std::error_code error;
  const std::string first = folder.of_attempt(0);
  std::filesystem::create_directories(first, error);
  check<ResourceError>(!error, "cannot make the log folder {}: {}", first, error.message());
  log_info("logs: {}", first);
  return folder;
}

// timeout(1) and some schedulers send one request twice, to the process and to its group.
constexpr int64_t kSameRequestMs = 100;

void say_notes(const RunOptions& options) {
  for (const auto& note : options.notes) log_info("{}", note);
  for (const auto& warning : options.warnings) log_warn("{}", warning);
}

/// For what is wrong with the command, whatever the other nodes say.
JobEnv planned_alone(const RunOptions& options, JobEnv job) {
  job.workers_of_nodes = {options.nproc_per_node};
  return job;
}

Nodes::End ended_as(const JobEnd& end, int node) {
  // Workers that saved and left expect those of other nodes to have done so, too.
  return {end.code == kExitDone,
          {node, fmt::format("the workers of node {} ended with exit code {}", node, end.code), "",
           false}};
}

/// nullptr: it is gone, which the attempt will say.
std::unique_ptr<Store> job_store_of(Nodes& nodes) try {
  auto store = nodes.job_store();
  store->set_answer_limit(patience::kStoreAnswers);
  return store;
} catch (const Error& error) {
  log_debug("the workers of this attempt will not go on without one of them: {}", error.what());
  return nullptr;
}

/// Workers that ended well here start again, too, where others did not. `cause`: of the attempt,
/// when all nodes have ended it.
JobEnd with_the_others(JobEnd here, const std::optional<StopCause>& cause, int stop_signal) {
  if (stop_signal != 0) return {kExitSignalBase + stop_signal, "", ""};
  if (!cause) return here;
  // Where nodes come or go, workers save and leave.
  const bool left =
      here.code == kExitSavedRestart && cause->may_restart && !cause->counts && !here.asked_to_stop;
  if (!here.restart_after.empty() || here.code == kExitDone || left) {
    if (cause->may_restart) return {0, cause->sentence, cause->reported};
    log_error("{}: the job ends", cause->sentence);
    return {kExitFailed, "", ""};
  }
  return here;
}

/// Where nodes have come or gone.
std::string where_again(const RunOptions& options) {
  if (options.least_nodes < options.nodes) return "on the nodes that are there";
  return fmt::format(
      "when there are {} nodes: start a launcher in the place of one that is lost, "
      "within {:.0f} s",
      options.nodes, std::chrono::duration<double>(options.join_timeout).count());
}

}  // namespace

int launch_workers(const RunOptions& given, const std::vector<std::string>& command,
                   FailureReport report, const std::function<void(const std::vector<int>&)>& met) {
  RunOptions options = given;
  say_notes(options);
  forget_handed_on();  // to this process, as a worker of another launcher: its workers are others
  Machine machine = read_machine();
  JobEnv job;
  job.run_id = run_id(options);
  // What is wrong with it is wrong now.
  plan_job(options, command, machine, planned_alone(options, job), process_env);

  // Workers of our own compare more themselves.
  if (options.nodes > 1 && report == FailureReport::block && options.facts.empty())
    options.facts = node_facts(machine, command);

  PrivateFolder own("trireme");
  std::string secret_file = own / "secret";
  Keeper keeper(job_cookie(own.path()), own.path());
  SignalInbox inbox(options.signals_to_handle);  // before the store's threads
  mark_owner(own.path());
  sweep_leftovers(std::filesystem::path(own.path()).parent_path().string());
  LogFolder logs = make_log_folder(options, job.run_id, own);
  StopRequests requests(kSameRequestMs);
  int stop_signal = 0;
  bool stops = false;  // by a signal that the workers have served
  const auto asked_to_stop = [&] {
    for (const int n : inbox.take())
      if (n != SIGCHLD && stop_signal == 0 &&
          (requests.is_impatient(n, now_ns() / 1'000'000) || !stops))
        stop_signal = n;
    return stop_signal != 0;
  };
  const std::unique_ptr<Nodes> nodes =
      options.nodes == 1 ? one_node(options, job.run_id, secret_file)
                         : meet_nodes(options, job.run_id, secret_file, asked_to_stop);
  if (!nodes) return kExitSignalBase + stop_signal;
  job.secret_file = secret_file;
  std::optional<SnapshotHolder> snapshots;
  try {
    snapshots.emplace(own / "snapshots");
    job.snapshots = own / "snapshots";
  } catch (const ResourceError& e) {
    log_warn("steps in the memory of workers that die will be lost: {}", e.what());
  }
  RestartMemory memory;
  std::optional<SharedSteps> shared;
  if (options.nodes > 1) shared.emplace(*nodes, options.neighbour_copies);
  std::optional<HangGuard> hangs;
  if (options.hang_timeout > Duration::zero()) try {
      hangs.emplace(own / "events", options.hang_timeout);
      job.events = own / "events";
    } catch (const ResourceError& e) {
      log_warn("ranks that hang will not be seen: {}", e.what());
    }

  SuperviseSpec spec;
  spec.name = command.front();
  spec.folder_stays = logs.stays;
  spec.inbox = &inbox;
  spec.requests = &requests;
  spec.keeper = &keeper;
  spec.snapshots = snapshots ? &*snapshots : nullptr;
  spec.memory = shared ? static_cast<KeptSnapshots*>(&*shared) : &memory;
  spec.hangs = hangs ? &*hangs : nullptr;
  spec.nodes = nodes.get();
  spec.report = report;
  RestartBudget restarts(options.max_restarts, options.restart_window);
  spec.restarts = &restarts;
  while (true) {
    const Nodes::Begun begun = nodes->begin(job.restarts, asked_to_stop);
    if (stop_signal != 0) return kExitSignalBase + stop_signal;
    if (begun.exit_code) return *begun.exit_code;
    job.held = shared ? shared->agree(begun, asked_to_stop) : memory.hand_on();
    if (stop_signal != 0) {
      nodes->leaves();
      return kExitSignalBase + stop_signal;
    }
    job.attempt = begun.attempt;
    job.restarts = begun.restarts;
    restarts.spend_until(begun.restarts, Clock::now());
    job.store = nodes->store_address();
    job.claims = begun.claims;
    job.generation = begun.claim;
    spec.fence = {begun.claims, begun.claim};
    // A part of a job of several nodes that this launcher is a worker of.
    if (begun.claims.empty()) spec.fence = GenerationFence::of_environment();
    job.master_addr = begun.master_address;
    job.master_port = begun.master_port;
    job.workers_of_nodes = nodes->workers_of_nodes();
    job.node_rank = nodes->node_rank();
    check_roles(options.roles, job.workers_of_nodes);
    if (met) met(job.workers_of_nodes);
    spec.folder = logs.of_attempt(job.attempt);
    job.flight_dir = options.flight_dir;
    if (job.flight_dir.empty() && logs.stays)
      job.flight_dir = std::filesystem::absolute(spec.folder + "/flight").string();
    JobPlan plan = plan_job(options, command, machine, job, process_env);
    log_debug("CPUs: {}", plan.why_cpus);
    std::optional<InPlace> in_place;
    if (options.max_restarts > 0)
      if (auto store = job_store_of(*nodes))
        in_place.emplace(std::move(store), job.attempt, job.workers_of_nodes, job.node_rank);
    spec.in_place = in_place ? &*in_place : nullptr;
    const int spent = restarts.spent();
    JobEnd end = supervise(options, plan, spec);
    stops = end.asked_to_stop;
    const auto cause = nodes->finish(ended_as(end, nodes->node_rank()), asked_to_stop);
    stops = false;
    // All workers have ended, so that all launchers see one number.
    if (in_place) restarts.spend_until(spent + in_place->losses(), Clock::now());
    job.restarts = restarts.spent();
    end = with_the_others(std::move(end), cause, stop_signal);
    if (end.restart_after.empty()) return end.code;
    spec.cause_before = end.cause;
    if (cause && !cause->counts) {
      log_warn("{}: all workers start again {}", end.restart_after, where_again(options));
      continue;
    }
    restarts.spend(Clock::now());
    job.restarts = restarts.spent();
    log_warn("{}: all workers start again ({})", end.restart_after, restarts.text(Clock::now()));
  }
}

std::string dry_run(const RunOptions& options, const std::vector<std::string>& command) {
  say_notes(options);
  JobEnv job;
  job.run_id = options.standalone ? "<random>" : options.rdzv_id;
  job.store = "127.0.0.1:<port>";
  job.secret_file = "<private folder>/secret";
  job.snapshots = "<private folder>/snapshots";
  if (options.hang_timeout > Duration::zero()) job.events = "<private folder>/events";
  job.error_file = "<log folder>/error.json";
  job.master_port = options.master_port;
  job.workers_of_nodes.assign(static_cast<size_t>(options.nodes), options.nproc_per_node);
  job.node_rank = options.node_rank;
  JobPlan plan = plan_job(options, command, read_machine(), job, process_env);
  if (options.master_port == 0)
    for (auto& worker : plan.workers) worker.env["MASTER_PORT"] = "<free port>";
  return to_json(plan);
}

void tune_single_process_env() {
  Machine machine = read_machine();
  CpuPlan cpu = plan_cpus(machine.cpus, machine.quota, 1, CpuBinding{});
  std::string coretype = choose_coretype(machine.model, machine.blas_corename);
  for (const auto& [name, value] : math_env(cpu.threads, coretype, process_env))
    ::setenv(name.c_str(), value.c_str(), 1);
}

void exec_single_process(const std::vector<std::string>& command) {
  check<UsageError>(!command.empty(), "no program to start");
  std::string program = find_program(command[0]);
  tune_single_process_env();
  std::vector<char*> argv;
  for (const auto& word : command) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  ::execv(program.c_str(), argv.data());
  fail<UsageError>("cannot start {}: {}", program, errno_text());
}

}  // namespace trireme::launch
