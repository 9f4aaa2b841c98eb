// SPDX-License-Identifier: Apache-2.0
#include "trireme/launch/supervisor.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <utility>

#include "trireme/base/check.h"
#include "trireme/base/log.h"
#include "trireme/launch/process/children.h"
#include "trireme/launch/process/process.h"
#include "trireme/launch/process/signals.h"
#include "trireme/launch/supervisor_impl.h"

namespace trireme::launch {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr Duration kFailureGrace = seconds(4);  // with what is left to do, all are gone within 5 s
// A worker that only lost its peer is often seen to end before the peer is: let that one come
// first.
constexpr Duration kSettle = milliseconds(250);
// One that saved and left has met the others before: they follow it by themselves.
constexpr Duration kFollow = seconds(3);
// A worker that stays stopped keeps all of them from saving: it is not waited for as long.
constexpr Duration kStoppedPatience = seconds(4);
constexpr Duration kStoppedLook = milliseconds(500);
constexpr Duration kNewcomerLook = milliseconds(20);  // for one that is to be taken in

}  // namespace

Supervisor::Supervisor(const RunOptions& options, const JobPlan& plan, const SuperviseSpec& spec)
    : options_(options),
      plan_(plan),
      spec_(spec),
      inbox_(*spec.inbox),
      output_(
          options, spec.folder,
          process_env("TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE").value_or(default_prefix(options)),
          place(spec.nodes->workers_of_nodes(), spec.nodes->node_rank(), 0).rank),
      oom_before_(read_oom_count()),
      not_ours_(children_of_this_process()) {}

Supervisor::~Supervisor() { clean_up(); }

JobEnd Supervisor::run() {
  for (const WorkerPlan& worker : plan_.workers) start(worker);
  while (!all_ended()) {
    wait(next_deadline());
    see_who_ended();
    look_for_hangs();
    use_.look();
    take_in_newcomers();
    act();
  }
  // Rank 0 of a run of ours speaks for all hosts.
  if (const std::string use = use_.sentence(); !use.empty() && spec_.report == FailureReport::block)
    log_info("{}", use);
  if (first_signal_) wait_for_their_children();
  clean_up();
  output_.finish(inbox_);
  keep_what_is_in_memory();
  if (const auto failure = to_tell()) {
    if (!failure->is_consequence() || !spec_.nodes->why_peers_are_lost()) tell(*failure);
  }
  if (first_signal_ && !told_ && !code_of_all()) tell_of_the_signal();
  const std::optional<StopCause> cause = spec_.nodes->stopped();
  if (cause && cause->may_restart && !first_signal_) return {0, cause->sentence, cause->reported};
  return {verdict(cause), "", "", first_signal_ != 0};
}

void Supervisor::start(const WorkerPlan& plan) {
  Worker worker;
  worker.rank = plan.local_rank;
  std::string folder = spec_.folder + "/" + std::to_string(plan.local_rank);
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  check<ResourceError>(!error, "cannot make the folder {}: {}", folder, error.message());
  worker.error_file = folder + "/error.json";
  EnvMap env = plan.env;
  env["TORCHELASTIC_ERROR_FILE"] = worker.error_file;
  if (spec_.in_place) env[kMemberVariable] = spec_.in_place->member_at(plan.local_rank);
  Output::Ends ends = output_.open(plan.local_rank);
  // Background process groups are stopped when they read a terminal: they get an empty stdin
  // instead.
  UniqueFd nothing(::isatty(0) ? ::open("/dev/null", O_RDONLY | O_CLOEXEC) : -1);

  ProcessSpec process;
  process.program = plan.program;
  process.argv = plan.argv;
  process.env = merged_environment(env);
  process.cpus = plan.cpus;
  process.stdin_fd = nothing.get();
  process.stdout_fd = ends.out.get();
  process.stderr_fd = ends.err.get();
  process.mask = inbox_.mask_before();
  process.default_signals = inbox_.handled();
  worker.pid = start_process(process);
  workers_.push_back(worker);
  use_.watch(rank_of(worker), worker.pid, cpus_of(plan));
  if (spec_.keeper) spec_.keeper->watch(worker.pid);
  log_debug("worker {} is process {}", worker.rank, worker.pid);
}

bool Supervisor::all_ended() const {
  return std::all_of(workers_.begin(), workers_.end(), [](const Worker& w) { return w.ended; });
}

double Supervisor::cpus_of(const WorkerPlan& plan) const {
  if (!plan.cpus.empty()) return static_cast<double>(plan.cpus.size());
  return static_cast<double>(inherited_affinity().size()) /
         static_cast<double>(plan_.workers.size());
}

Deadline Supervisor::next_deadline() const {
  if (stage_ == Stage::running) {
    Duration look = use_.next_look().remaining();
    if (spec_.hangs) look = std::min(look, spec_.hangs->next_look().remaining());
    if (spec_.in_place && spec_.in_place->awaits_any()) look = std::min(look, kNewcomerLook);
    return Deadline::after(look);
  }
  if (stage_ == Stage::killed) return Deadline::never();
  if (stage_ == Stage::leaving)
    return Deadline::after(std::min<Duration>(kStoppedLook, kill_at_.remaining()));
  return stage_ == Stage::stopping && !term_sent_ ? term_at_ : kill_at_;
}

void Supervisor::wait(Deadline deadline) {
  std::vector<pollfd> fds{{inbox_.fd(), POLLIN, 0}};
  output_.add_to(fds);
  if (spec_.nodes->fd() >= 0 && stage_ == Stage::running)
    fds.push_back({spec_.nodes->fd(), POLLIN, 0});
  if (spec_.snapshots) spec_.snapshots->add_to(fds);
  if (spec_.hangs) spec_.hangs->add_to(fds);
  ::poll(fds.data(), fds.size(), deadline.poll_ms(60'000));
  output_.serve(fds);
  serve_snapshots();
  if (spec_.hangs)
    spec_.hangs->serve([this](pid_t pid, int said) { return rank_of_process(pid, said); });
  for (int n : inbox_.take())
    if (n != SIGCHLD) on_signal(n);
}

void Supervisor::serve_snapshots() {
  if (!spec_.snapshots) return;
  SnapshotHolder& held = *spec_.snapshots;
  held.serve();
  if (spec_.in_place && held.all_have_let_go()) spec_.memory->nothing_older_is_needed();
  spec_.memory->see(held);
  if (!held.is_asked()) return;
  if (!spec_.in_place || !spec_.memory->has_whole_steps()) return held.answer({});
  if (std::vector<HandedSnapshot> left = held.take_left(); !left.empty())
    spec_.memory->take(std::move(left), spec_.fence);
  held.answer(spec_.memory->offer());
}

void Supervisor::on_signal(int n) {
  const bool is_impatient = spec_.requests->is_impatient(n, now_ns() / 1'000'000);
  if (first_signal_) {
    if (!is_impatient) return;
  } else {
    first_signal_ = n;
    signal_at_ = Clock::now();
    if (stage_ == Stage::running) {
      log_info(
          "{}: asked the workers to stop; they have {:.0f} s (a second SIGINT or SIGTERM stops "
          "them at once)",
          signal_name(n), std::chrono::duration<double>(options_.shutdown_timeout).count());
      for (Worker& worker : workers_)
        if (!worker.ended) wake(worker, n);
      kill_at_ = Deadline::after(options_.shutdown_timeout);
      stage_ = Stage::leaving;
      spec_.nodes->leaves();
      return;
    }
    // They save already, because nodes come or go.
    if (const auto cause = spec_.nodes->stopped();
        stage_ == Stage::stopping && cause && !cause->counts) {
      log_info("{}: the workers are asked to stop already", signal_name(n));
      kill_at_ = Deadline::after(options_.shutdown_timeout);
      stage_ = Stage::leaving;
      spec_.nodes->leaves();
      return;
    }
    // They leave: one that failed is followed, or one that was signalled itself.
    if (!StopRequests::insists(n) || follow_one_that_saved()) {
      log_info("{}: the workers are leaving already", signal_name(n));
      return;
    }
  }
  log_info("{}: stopping the workers at once", signal_name(n));
  kill_all();
}

bool Supervisor::follow_one_that_saved() const {
  return stage_ == Stage::stopping &&
         std::any_of(workers_.begin(), workers_.end(),
                     [](const Worker& w) { return w.saved_and_left(); }) &&
         std::none_of(workers_.begin(), workers_.end(),
                      [](const Worker& w) { return w.failed() && !w.saved_and_left(); });
}

// Ended workers stay unreaped until the end of the job, so that their process group's number
// cannot come to mean somebody else's.
void Supervisor::see_who_ended() {
  for (Worker& worker : workers_) {
    siginfo_t info{};
    if (worker.ended ||
        ::waitid(P_PID, static_cast<id_t>(worker.pid), &info, WEXITED | WNOHANG | WNOWAIT) != 0 ||
        info.si_pid != worker.pid)
      continue;
    worker.ended = true;
    use_.ended(worker.pid);
    worker.code = info.si_code == CLD_EXITED ? info.si_status : -info.si_status;
    worker.ended_ns = wall_ns();
    worker.ended_by_itself = first_signal_ == 0;
    worker.report = read_error_file(worker.error_file);
    if (worker.code == -SIGKILL && !worker.killed)
      worker.note = oom_note(oom_before_, read_oom_count());
  }
  // All of /proc is read to tell whose a dead child was; so only where there is one.
  siginfo_t dead{};
  if (::waitid(P_ALL, 0, &dead, WEXITED | WNOHANG | WNOWAIT) != 0 || dead.si_pid == 0) return;
  for (pid_t orphan : orphans()) ::waitpid(orphan, nullptr, WNOHANG);
}

void Supervisor::act() {
  if (stage_ == Stage::running) {
    auto failed =
        std::find_if(workers_.begin(), workers_.end(), [](const Worker& w) { return w.failed(); });
    while (failed != workers_.end() && may_be_replaced(*failed) && replace(*failed)) {
      failed = std::find_if(workers_.begin(), workers_.end(),
                            [](const Worker& w) { return w.failed(); });
    }
    if (failed == workers_.end()) return stop_with_the_others();
    Duration grace = std::min(options_.shutdown_timeout, kFailureGrace);
    Duration wait =
        failed->saved_and_left() ? std::min(grace, kFollow)
        : as_failure(*failed).is_consequence() || (spec_.nodes->come_and_go() && !failed->report)
            ? std::min(grace, kSettle)
            : Duration::zero();
    kill_at_ = Deadline::after(
        failed->saved_and_left() ? std::max(wait + grace, options_.shutdown_timeout) : grace);
    term_at_ = Deadline::after(wait);
    stage_ = Stage::stopping;
  }
  if (stage_ == Stage::stopping && !term_sent_ && (term_at_.expired() || has_first_cause())) {
    // The other nodes are not asked to wait until our workers are gone.
    if (several_nodes())
      if (const auto failure = to_tell();
          failure && !(spec_.nodes->come_and_go() && failure->is_consequence()))
        tell(*failure);
    ask_all_to_end();
  }
  if (stage_ == Stage::leaving) see_who_is_stopped();
  if ((stage_ == Stage::stopping || stage_ == Stage::leaving) && kill_at_.expired()) {
    for (const Worker& worker : workers_)
      if (!worker.ended)
        log_warn("worker {} (pid {}) did not leave in time and is killed", worker.rank, worker.pid);
    kill_all();
  }
}

int Supervisor::rank_of(const Worker& worker) const {
  return place(spec_.nodes->workers_of_nodes(), spec_.nodes->node_rank(), worker.rank).rank;
}

void Supervisor::ask_all_to_end() {
  term_sent_ = true;
  for (Worker& worker : workers_) {
    if (worker.ended) continue;
    worker.stop_requested = true;
    wake(worker, SIGTERM);
  }
}

void Supervisor::stop_with_the_others() {
  const std::optional<StopCause> cause = spec_.nodes->stopped();
  if (!cause) return;
  // Workers of Trireme save where nobody has failed.
  kill_at_ = Deadline::after(cause->counts ? std::min(options_.shutdown_timeout, kFailureGrace)
                                           : options_.shutdown_timeout);
  stage_ = Stage::stopping;
  ask_all_to_end();
}

void Supervisor::wake(const Worker& worker, int signal) {
  ::kill(-worker.pid, signal);
  ::kill(-worker.pid, SIGCONT);
}

void Supervisor::see_who_is_stopped() {
  for (const Worker& worker : workers_) {
    if (worker.ended || !is_stopped(worker.pid)) continue;
    if (Clock::now() - signal_at_ < kStoppedPatience) {
      ::kill(-worker.pid, SIGCONT);
      continue;
    }
    log_warn("worker {} (pid {}) is stopped and does not continue: the workers are killed",
             worker.rank, worker.pid);
    return kill_all();
  }
}

bool Supervisor::has_first_cause() const {
  return std::any_of(workers_.begin(), workers_.end(), [this](const Worker& w) {
    // What a worker does not say itself may be that it lost a node.
    return w.failed() && !w.saved_and_left() && !as_failure(w).is_consequence() &&
           (w.report || !spec_.nodes->come_and_go());
  });
}

void Supervisor::kill_all() {
  stage_ = Stage::killed;
  for (Worker& worker : workers_) {
    if (worker.ended) continue;
    worker.stop_requested = worker.killed = true;
    ::kill(-worker.pid, SIGKILL);
  }
}

JobEnd supervise(const RunOptions& options, const JobPlan& plan, const SuperviseSpec& spec) {
  return Supervisor(options, plan, spec).run();
}

}  // namespace trireme::launch
