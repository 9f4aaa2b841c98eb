// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "trireme/base/clock.h"
#include "trireme/launch/failure.h"
#include "trireme/launch/machine/oom.h"
#include "trireme/launch/machine/use_watch.h"
#include "trireme/launch/output.h"
#include "trireme/launch/process/subreaper.h"
#include "trireme/launch/supervisor.h"
#include "trireme/launch/worker.h"

namespace trireme::launch {

/// What supervise() does, from the start of the workers to their end.
class Supervisor {
 public:
  Supervisor(const RunOptions& options, const JobPlan& plan, const SuperviseSpec& spec);
  ~Supervisor();
  Supervisor(const Supervisor&) = delete;

  JobEnd run();

 private:
  enum class Stage { running, stopping, leaving, killed };

  void start(const WorkerPlan& plan);
  bool all_ended() const;
  /// Those that it is bound to, or its part of what this launcher may use.
  double cpus_of(const WorkerPlan& plan) const;
  Deadline next_deadline() const;
  void wait(Deadline deadline);
  void serve_snapshots();
  void on_signal(int n);
  /// A worker saved because a signal came to it alone, and nobody has failed.
  bool follow_one_that_saved() const;
  void see_who_ended();
  void act();
  bool several_nodes() const { return spec_.nodes->workers_of_nodes().size() > 1; }
  int rank_of(const Worker& worker) const;
  void ask_all_to_end();
  /// Another node ended the attempt.
  void stop_with_the_others();
  /// A stopped one would not hear a signal.
  static void wake(const Worker& worker, int signal);
  void see_who_is_stopped();
  bool has_first_cause() const;
  void kill_all();

  // supervisor_replace.cc: ranks that hang, and those that go on without one
  /// It ended without a word, or for hanging, and the others can go on.
  bool may_be_replaced(const Worker& gone) const;
  /// Other launchers replace workers, too.
  void see_what_others_spent() const;
  /// False: nobody is to be replaced any more.
  bool replace(Worker& gone);
  void take_in_newcomers();
  /// A worker may be a script that started what marks its progress.
  int rank_of_process(pid_t pid, int said) const;
  void look_for_hangs();
  /// Those that hang are killed, and nobody else; not for the same cause a second time.
  bool others_go_on_without(const std::string& cause);
  bool may_restart_after(const HangGuard::Hang& hang) const;
  /// Where ranks write what they were doing; "": nowhere.
  std::string flight_folder() const;
  template <class Goes>
  bool can_go_on_without(const Goes& goes) const {
    if (!spec_.in_place || first_signal_) return false;
    see_what_others_spent();
    if (spec_.restarts->left(Clock::now()) <= 0) return false;
    std::vector<int> living;
    for (const Worker& worker : workers_) {
      if (goes(worker)) continue;
      if (worker.ended) return false;
      living.push_back(worker.rank);
    }
    return spec_.in_place->can_go_on(living);
  }

  // supervisor_end.cc: what is left, and how it is told
  std::vector<pid_t> orphans() const;
  void wait_for_their_children();
  void clean_up();
  void forget_all();
  /// What workers had in memory of steps: the next attempt goes on from it, or it is written.
  void keep_what_is_in_memory();
  WorkerFailure as_failure(const Worker& worker) const;
  std::vector<WorkerFailure> failures_to_tell() const;
  /// What all of them say themselves: that they were interrupted, or saved to be started again.
  std::optional<int> code_of_all() const;
  /// What ended the attempt, as this node sees it; nothing: no failure, or it is told already.
  std::optional<WorkerFailure> to_tell() const;
  void tell(const WorkerFailure& failure);
  void tell_of_the_signal();
  bool may_restart(const WorkerFailure& failure) const;
  bool may_go_better(const WorkerFailure& failure) const;
  int verdict(const std::optional<StopCause>& cause) const;

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
  const int spent_before_ = spec_.restarts ? spec_.restarts->spent() : 0;  // until this attempt
  std::string hung_before_;  // the cause, where the others went on
  int first_signal_ = 0;
  Clock::time_point signal_at_;
  Deadline term_at_ = Deadline::never();
  Deadline kill_at_ = Deadline::never();
  bool term_sent_ = false;
  bool told_ = false;
  bool cleaned_ = false;
};

}  // namespace trireme::launch
