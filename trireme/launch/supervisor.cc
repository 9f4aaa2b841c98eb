// SPDX-License-Identifier: Apache-2.0
#include "trireme/launch/supervisor.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <numeric>
#include <utility>

#include "trireme/base/check.h"
#include "trireme/base/clock.h"
#include "trireme/base/log.h"
#include "trireme/launch/failure.h"
#include "trireme/launch/hang/hang_report.h"
#include "trireme/launch/machine/oom.h"
#include "trireme/launch/machine/use_watch.h"
#include "trireme/launch/output.h"
#include "trireme/launch/process/children.h"
#include "trireme/launch/process/process.h"
#include "trireme/launch/process/signal_inbox.h"
#include "trireme/launch/process/signals.h"
#include "trireme/launch/process/subreaper.h"
#include "trireme/launch/worker.h"
#include "trireme/net/address.h"
#include "trireme/net/socket.h"

namespace trireme::launch {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr Duration kFailureGrace = seconds(4);  // with what is left to do, all are gone within 5 s
// A worker that only lost its peer is often seen to end before the peer is: let that one come
// first.
constexpr Duration kSettle = milliseconds(250);
constexpr Duration kReapPatience =
    seconds(5);  // after SIGKILL: what then remains hangs in the kernel
// One that saved and left has met the others before: they follow it by themselves.
constexpr Duration kFollow = seconds(3);
// A worker that stays stopped keeps all of them from saving: it is not waited for as long.
constexpr Duration kStoppedPatience = seconds(4);
constexpr Duration kStoppedLook = milliseconds(500);
constexpr Duration kNewcomerLook = milliseconds(20);  // for one that is to be taken in

class Supervisor {
 public:
  Supervisor(const RunOptions& options, const JobPlan& plan, const SuperviseSpec& spec)
      : options_(options),
        plan_(plan),
        spec_(spec),
        inbox_(*spec.inbox),
        output_(options, spec.folder,
                process_env("TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE")
                    .value_or("[${role_name}${local_rank}]:"),
                place(spec.nodes->workers_of_nodes(), spec.nodes->node_rank(), 0).rank),
        oom_before_(read_oom_count()),
        not_ours_(children_of_this_process()) {}

  ~Supervisor() { clean_up(); }

  JobEnd run() {
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
    if (const std::string use = use_.sentence();
        !use.empty() && spec_.report == FailureReport::block)
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

 private:
  enum class Stage { running, stopping, leaving, killed };

  void start(const WorkerPlan& plan) {
    Worker worker;
    worker.rank = plan.local_rank;
    std::string folder = spec_.folder + "/" + std::to_string(plan.local_rank);
    std::error_code error;
    std::filesystem::create_directories(folder, error);
    check<ResourceError>(!error, "cannot make the folder {}: {}", folder, error.message());
    worker.error_file = folder + "/error.json";
    EnvMap env = plan.env;
    env["TORCHELASTIC_ERROR_FILE"] = worker.error_file;
    // Empty: of a launcher that is itself a worker of another, the number is not ours.
    env[kMemberVariable] = spec_.in_place ? spec_.in_place->member_at(plan.local_rank) : "";
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

  bool all_ended() const {
    return std::all_of(workers_.begin(), workers_.end(), [](const Worker& w) { return w.ended; });
  }

  /// Those that it is bound to, or its part of what this launcher may use.
  double cpus_of(const WorkerPlan& plan) const {
    if (!plan.cpus.empty()) return static_cast<double>(plan.cpus.size());
    return static_cast<double>(inherited_affinity().size()) /
           static_cast<double>(plan_.workers.size());
  }

  Deadline next_deadline() const {
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

  void wait(Deadline deadline) {
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

  void serve_snapshots() {
    if (!spec_.snapshots) return;
    SnapshotHolder& held = *spec_.snapshots;
    held.serve();
    if (spec_.in_place && held.all_have_let_go()) spec_.memory->nothing_older_is_needed();
    spec_.memory->see(held);
    if (!held.is_asked()) return;
    if (!spec_.in_place) return held.answer({});
    if (std::vector<HandedSnapshot> left = held.take_left(); !left.empty())
      spec_.memory->take(std::move(left), spec_.fence);
    held.answer(spec_.memory->offer());
  }

  void on_signal(int n) {
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

  /// A worker saved because a signal came to it alone, and nobody has failed.
  bool follow_one_that_saved() const {
    return stage_ == Stage::stopping &&
           std::any_of(workers_.begin(), workers_.end(),
                       [](const Worker& w) { return w.saved_and_left(); }) &&
           std::none_of(workers_.begin(), workers_.end(),
                        [](const Worker& w) { return w.failed() && !w.saved_and_left(); });
  }

  // Ended workers stay unreaped until the end of the job, so that their process group's number
  // cannot come to mean somebody else's.
  void see_who_ended() {
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
    for (pid_t orphan : orphans()) ::waitpid(orphan, nullptr, WNOHANG);
  }

  std::vector<pid_t> orphans() const {
    std::vector<pid_t> found;
    for (pid_t child : children_of_this_process()) {
      bool known = std::find(not_ours_.begin(), not_ours_.end(), child) != not_ours_.end();
      for (const Worker& worker : workers_) known |= worker.pid == child;
      known |= std::find(replaced_.begin(), replaced_.end(), child) != replaced_.end();
      if (!known) found.push_back(child);
    }
    return found;
  }

  void act() {
    if (stage_ == Stage::running) {
      auto failed = std::find_if(workers_.begin(), workers_.end(),
                                 [](const Worker& w) { return w.failed(); });
      while (failed != workers_.end() && may_be_replaced(*failed)) {
        replace(*failed);
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
      if (spec_.nodes->workers_of_nodes().size() > 1)
        if (const auto failure = to_tell();
            failure && !(spec_.nodes->come_and_go() && failure->is_consequence()))
          tell(*failure);
      ask_all_to_end();
    }
    if (stage_ == Stage::leaving) see_who_is_stopped();
    if ((stage_ == Stage::stopping || stage_ == Stage::leaving) && kill_at_.expired()) {
      for (const Worker& worker : workers_)
        if (!worker.ended)
          log_warn("worker {} (pid {}) did not leave in time and is killed", worker.rank,
                   worker.pid);
      kill_all();
    }
  }

  /// It ended without a word, or for hanging, and the others can go on.
  bool may_be_replaced(const Worker& gone) const {
    return !gone.report && !gone.saved_and_left() && can_go_on_without([](const Worker& w) {
      return w.failed() && !w.report && !w.saved_and_left();
    });
  }

  template <class Goes>
  bool can_go_on_without(const Goes& goes) const {
    if (!spec_.in_place || first_signal_ || spec_.restarts->left(Clock::now()) <= 0) return false;
    std::vector<int> living;
    for (const Worker& worker : workers_) {
      if (goes(worker)) continue;
      if (worker.ended) return false;
      living.push_back(worker.rank);
    }
    return spec_.in_place->can_go_on(living);
  }

  void replace(Worker& gone) {
    spec_.restarts->spend(Clock::now());
    log_warn("{}: the others go on, and a new worker takes its place ({})",
             gone.hung ? hung_before_ : failure_sentence(as_failure(gone)),
             spec_.restarts->text(Clock::now()));
    ::kill(-gone.pid, SIGKILL);  // what it started
    replaced_.push_back(gone.pid);
    const int place = gone.rank;
    std::erase_if(workers_, [place](const Worker& w) { return w.rank == place; });
    spec_.in_place->lost(place);
    start(plan_.workers.at(static_cast<size_t>(place)));
  }

  void take_in_newcomers() {
    if (stage_ != Stage::running || !spec_.in_place || !spec_.in_place->awaits_any()) return;
    if (const int workers = spec_.in_place->take_in())
      log_info("a new worker is there: {} train from the next step on", workers);
  }

  int rank_of(const Worker& worker) const {
    return place(spec_.nodes->workers_of_nodes(), spec_.nodes->node_rank(), worker.rank).rank;
  }

  /// A worker may be a script that started what marks its progress.
  int rank_of_process(pid_t pid, int said) const {
    const pid_t group = ::getpgid(pid);
    for (const Worker& worker : workers_)
      if (worker.pid == group) return rank_of(worker);
    for (const Worker& worker : workers_)
      if (rank_of(worker) == said) return said;
    return -1;
  }

  void look_for_hangs() {
    if (!spec_.hangs || stage_ != Stage::running) return;
    const auto& nodes = spec_.nodes->workers_of_nodes();
    std::vector<std::pair<int, pid_t>> living;
    if (spec_.hangs->next_look().expired())
      for (const Worker& worker : workers_)
        if (!worker.ended) living.emplace_back(rank_of(worker), worker.pid);
    const auto hang = spec_.hangs->look(std::accumulate(nodes.begin(), nodes.end(), 0), living);
    if (!hang) return;
    log_warn("{}", hang->verdict.sentence);
    for (size_t i : hang->verdict.blamed)
      for (Worker& worker : workers_)
        if (rank_of(worker) == hang->ranks[i].rank) {
          worker.hung = true;
          worker.note = hang->verdict.sentence;
        }
    report_hang(*hang, {spec_.folder_stays ? spec_.folder : "", flight_folder()});
    if (others_go_on_without(hang->verdict.cause)) return;
    told_ = true;
    spec_.nodes->stop({spec_.nodes->node_rank(),
                       nodes.size() > 1 ? hang->verdict.sentence : hang->verdict.cause,
                       hang->verdict.cause, may_restart_after(*hang)});
    kill_all();
  }

  /// Those that hang are killed, and nobody else; not for the same cause a second time.
  bool others_go_on_without(const std::string& cause) {
    if (cause == spec_.cause_before || std::exchange(hung_before_, cause) == cause) return false;
    if (!can_go_on_without([](const Worker& w) { return w.hung; })) return false;
    for (Worker& worker : workers_)
      if (worker.hung && !worker.ended) ::kill(-worker.pid, SIGKILL);
    spec_.hangs->begin_anew();
    return true;
  }

  bool may_restart_after(const HangGuard::Hang& hang) const {
    if (spec_.restarts->left(Clock::now()) <= 0) return false;
    if (hang.verdict.cause != spec_.cause_before) return true;
    log_warn("{}, for the second time: not started again", hang.verdict.cause);
    return false;
  }

  /// Where ranks write what they were doing; "": nowhere.
  std::string flight_folder() const {
    const char* const name = "TRIREME_FLIGHT_DIR";
    const EnvMap& env = plan_.workers.front().env;
    const auto found = env.find(name);
    return found != env.end() ? found->second : process_env(name).value_or("");
  }

  void ask_all_to_end() {
    term_sent_ = true;
    for (Worker& worker : workers_) {
      if (worker.ended) continue;
      worker.stop_requested = true;
      wake(worker, SIGTERM);
    }
  }

  /// Another node ended the attempt.
  void stop_with_the_others() {
    const std::optional<StopCause> cause = spec_.nodes->stopped();
    if (!cause) return;
    // Workers of Trireme save where nobody has failed.
    kill_at_ = Deadline::after(cause->counts ? std::min(options_.shutdown_timeout, kFailureGrace)
                                             : options_.shutdown_timeout);
    stage_ = Stage::stopping;
    ask_all_to_end();
  }

  /// A stopped one would not hear a signal.
  static void wake(const Worker& worker, int signal) {
    ::kill(-worker.pid, signal);
    ::kill(-worker.pid, SIGCONT);
  }

  void see_who_is_stopped() {
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

  bool has_first_cause() const {
    return std::any_of(workers_.begin(), workers_.end(), [this](const Worker& w) {
      // What a worker does not say itself may be that it lost a node.
      return w.failed() && !w.saved_and_left() && !as_failure(w).is_consequence() &&
             (w.report || !spec_.nodes->come_and_go());
    });
  }

  void kill_all() {
    stage_ = Stage::killed;
    for (Worker& worker : workers_) {
      if (worker.ended) continue;
      worker.stop_requested = worker.killed = true;
      ::kill(-worker.pid, SIGKILL);
    }
  }

  // A worker may be a script that a signal ended while the program it started is still saving.
  void wait_for_their_children() {
    std::vector<pid_t> groups;
    for (const Worker& worker : workers_) groups.push_back(worker.pid);
    while (stage_ == Stage::leaving && !kill_at_.expired() && living_in_groups(groups) > 0) {
      wait(Deadline::after(std::min<Duration>(milliseconds(20), kill_at_.remaining())));
      see_who_ended();
    }
  }

  void clean_up() {
    if (cleaned_) return;
    cleaned_ = true;
    if (spec_.hangs) spec_.hangs->forget_all();
    for (const Worker& worker : workers_) ::kill(-worker.pid, SIGKILL);
    auto deadline = Deadline::after(kReapPatience);
    std::vector<pid_t> left;
    do {
      left = orphans();
      for (const Worker& worker : workers_) left.push_back(worker.pid);
      left.insert(left.end(), replaced_.begin(), replaced_.end());
      std::erase_if(left, [this](pid_t pid) {
        bool worker = std::any_of(workers_.begin(), workers_.end(),
                                  [pid](const Worker& w) { return w.pid == pid; });
        worker |= std::find(replaced_.begin(), replaced_.end(), pid) != replaced_.end();
        if (!worker) ::kill(pid, SIGKILL);
        pid_t result = ::waitpid(pid, nullptr, WNOHANG);
        return result == pid || (result < 0 && errno == ECHILD);
      });
      if (left.empty()) return forget_all();
      pollfd child{inbox_.fd(), POLLIN, 0};
      ::poll(&child, 1, 10);
      inbox_.take();
    } while (!deadline.expired());
    log_error("process {} survives SIGKILL (it hangs in the kernel); leaving without it", left[0]);
  }

  void forget_all() {
    if (!spec_.keeper) return;
    for (const Worker& worker : workers_) spec_.keeper->forget(worker.pid);
    for (const pid_t pid : replaced_) spec_.keeper->forget(pid);
  }

  /// What workers had in memory of steps: the next attempt goes on from it, or it is written.
  void keep_what_is_in_memory() {
    if (!spec_.snapshots ||
        std::all_of(workers_.begin(), workers_.end(), [](const Worker& w) { return w.code == 0; }))
      return;
    spec_.memory->take(spec_.snapshots->take_all(), spec_.fence);
  }

  WorkerFailure as_failure(const Worker& worker) const {
    WorkerFailure failure;
    const Placement at =
        place(spec_.nodes->workers_of_nodes(), spec_.nodes->node_rank(), worker.rank);
    failure.rank = at.rank;
    failure.local_rank = at.local_rank;
    failure.pid = worker.pid;
    failure.exit_code = worker.code;
    failure.observed_ns = worker.ended_ns;
    failure.report = worker.report;
    failure.note = worker.note;
    if (worker.report && spec_.folder_stays) failure.error_file = worker.error_file;
    return failure;
  }

  std::vector<WorkerFailure> failures_to_tell() const {
    std::vector<WorkerFailure> failures;
    for (const Worker& worker : workers_) {
      // After a signal, leaving with any code is what was asked for; a report of its own is still
      // news.
      bool tell = worker.ended_by_itself || (worker.report && !as_failure(worker).is_consequence());
      if (worker.failed() && tell) failures.push_back(as_failure(worker));
    }
    return failures;
  }

  /// What all of them say themselves: that they were interrupted, or saved to be started again.
  std::optional<int> code_of_all() const {
    for (int own : {kExitSignalBase + SIGINT, static_cast<int>(kExitSavedRestart)})
      if (std::all_of(workers_.begin(), workers_.end(),
                      [own](auto& w) { return w.code == own && !w.report; }))
        return own;
    return std::nullopt;
  }

  /// What ended the attempt, as this node sees it; nothing: no failure, or it is told already.
  std::optional<WorkerFailure> to_tell() const {
    const std::vector<WorkerFailure> failures = failures_to_tell();
    if (told_ || code_of_all() || failures.empty()) return std::nullopt;
    return failures[first_cause(failures)];
  }

  void tell(const WorkerFailure& failure) {
    told_ = true;
    spec_.nodes->stop({spec_.nodes->node_rank(), failure_sentence(failure),
                       failure.report ? failure.report->message : "", may_restart(failure)});
  }

  void tell_of_the_signal() {
    told_ = true;
    spec_.nodes->stop({spec_.nodes->node_rank(),
                       fmt::format("node {} ({}) was asked to stop by {}", spec_.nodes->node_rank(),
                                   net::host_name(), signal_name(first_signal_)),
                       "", false});
  }

  bool may_restart(const WorkerFailure& failure) const {
    return !first_signal_ && spec_.restarts->left(Clock::now()) > 0 && may_go_better(failure);
  }

  bool may_go_better(const WorkerFailure& failure) const {
    if (!failure.report) return true;
    if (failure.report->type == "UsageError") return false;
    if (!names_a_step(failure.report->message) || failure.report->message != spec_.cause_before)
      return true;
    log_warn("the same failure at the same step for the second time: not started again");
    return false;
  }

  int verdict(const std::optional<StopCause>& cause) const {
    if (const auto code = code_of_all()) {
      if (cause && !first_signal_) log_warn("{}: the workers of this node left", cause->sentence);
      return *code;
    }
    if (cause && cause->node != spec_.nodes->node_rank() && !first_signal_) {
      log_error("{}: the workers of this node were ended, too", cause->sentence);
      return kExitFailed;
    }
    const std::vector<WorkerFailure> failures = failures_to_tell();
    if (!failures.empty() && spec_.report == FailureReport::one_line) {
      const WorkerFailure& cause = failures[first_cause(failures)];
      if (cause.exit_code > 0 && cause.report) {
        // "UsageError: what": the kind is in the exit code, and said in words.
        std::string text = cause.report->message;
        if (!cause.report->type.empty() && text.rfind(cause.report->type + ": ", 0) == 0)
          text = text.substr(cause.report->type.size() + 2);
        log_error("{}", text);
        return cause.exit_code;
      }
    }
    if (!failures.empty()) {
      std::string block = format_error_block(spec_.name, net::host_name(), failures);
      [[maybe_unused]] auto written = ::write(STDERR_FILENO, block.data(), block.size());
    }
    if (!first_signal_) return failures.empty() ? kExitDone : kExitFailed;
    return kExitSignalBase + first_signal_;
  }

  const RunOptions& options_;
  const JobPlan& plan_;
  const SuperviseSpec& spec_;
  SubreaperScope subreaper_;
  SignalInbox& inbox_;
  Output output_;
  OomCount oom_before_;
  UseWatch use_;
  std::vector<pid_t> not_ours_;
  std::vector<Worker> workers_;
  std::vector<pid_t> replaced_;  // ended, unreaped as the others that end
  Stage stage_ = Stage::running;
  std::string hung_before_;  // the cause, where the others went on
  int first_signal_ = 0;
  Clock::time_point signal_at_;
  Deadline term_at_ = Deadline::never();
  Deadline kill_at_ = Deadline::never();
  bool term_sent_ = false;
  bool told_ = false;
  bool cleaned_ = false;
};

}  // namespace

JobEnd supervise(const RunOptions& options, const JobPlan& plan, const SuperviseSpec& spec) {
  return Supervisor(options, plan, spec).run();
}

}  // namespace trireme::launch
