// SPDX-License-Identifier: Apache-2.0
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "trireme/base/log.h"
#include "trireme/launch/failure.h"
#include "trireme/launch/process/children.h"
#include "trireme/launch/process/signals.h"
#include "trireme/launch/supervisor_impl.h"
#include "trireme/net/address.h"
#include "trireme/net/socket.h"

// When the workers end: what they have left behind, and what is said of them.

namespace trireme::launch {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr Duration kReapPatience =
    seconds(5);  // after SIGKILL: what then remains hangs in the kernel

}  // namespace

std::vector<pid_t> Supervisor::orphans() const {
  std::vector<pid_t> found;
  for (pid_t child : children_of_this_process()) {
    bool known = std::find(not_ours_.begin(), not_ours_.end(), child) != not_ours_.end();
    for (const Worker& worker : workers_) known |= worker.pid == child;
    known |= std::find(replaced_.begin(), replaced_.end(), child) != replaced_.end();
    if (!known) found.push_back(child);
  }
  return found;
}

// A worker may be a script that a signal ended while the program it started is still saving.
void Supervisor::wait_for_their_children() {
  std::vector<pid_t> groups;
  for (const Worker& worker : workers_) groups.push_back(worker.pid);
  while (stage_ == Stage::leaving && !kill_at_.expired() && living_in_groups(groups) > 0) {
    wait(Deadline::after(std::min<Duration>(milliseconds(20), kill_at_.remaining())));
    see_who_ended();
  }
}

void Supervisor::clean_up() {
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

void Supervisor::forget_all() {
  if (!spec_.keeper) return;
  for (const Worker& worker : workers_) spec_.keeper->forget(worker.pid);
  for (const pid_t pid : replaced_) spec_.keeper->forget(pid);
}

void Supervisor::keep_what_is_in_memory() {
  if (!spec_.snapshots ||
      std::all_of(workers_.begin(), workers_.end(), [](const Worker& w) { return w.code == 0; }))
    return;
  spec_.memory->take(spec_.snapshots->take_all(), spec_.fence);
}

WorkerFailure Supervisor::as_failure(const Worker& worker) const {
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

std::vector<WorkerFailure> Supervisor::failures_to_tell() const {
  std::vector<WorkerFailure> failures;
  for (const Worker& worker : workers_) {
    // After a signal, leaving with any code is what was asked for; a report of its own is still
    // news.
    bool tell = worker.ended_by_itself || (worker.report && !as_failure(worker).is_consequence());
    if (worker.failed() && tell) failures.push_back(as_failure(worker));
  }
  return failures;
}

std::optional<int> Supervisor::code_of_all() const {
  for (int own : {kExitSignalBase + SIGINT, static_cast<int>(kExitSavedRestart)})
    if (std::all_of(workers_.begin(), workers_.end(),
                    [own](auto& w) { return w.code == own && !w.report; }))
      return own;
  return std::nullopt;
}

std::optional<WorkerFailure> Supervisor::to_tell() const {
  const std::vector<WorkerFailure> failures = failures_to_tell();
  if (told_ || code_of_all() || failures.empty()) return std::nullopt;
  return failures[first_cause(failures)];
}

void Supervisor::tell(const WorkerFailure& failure) {
  told_ = true;
  spec_.nodes->stop({spec_.nodes->node_rank(), failure_sentence(failure),
                     failure.report ? failure.report->message : "", may_restart(failure)});
}

void Supervisor::tell_of_the_signal() {
  told_ = true;
  spec_.nodes->stop({spec_.nodes->node_rank(),
                     fmt::format("node {} ({}) was asked to stop by {}", spec_.nodes->node_rank(),
                                 net::host_name(), signal_name(first_signal_)),
                     "", false});
}

bool Supervisor::may_restart(const WorkerFailure& failure) const {
  return !first_signal_ && spec_.restarts->left(Clock::now()) > 0 && may_go_better(failure);
}

bool Supervisor::may_go_better(const WorkerFailure& failure) const {
  if (!failure.report) return true;
  if (failure.report->type == "UsageError") return false;
  if (!names_a_step(failure.report->message) || failure.report->message != spec_.cause_before)
    return true;
  log_warn("the same failure at the same step for the second time: not started again");
  return false;
}

int Supervisor::verdict(const std::optional<StopCause>& cause) const {
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

}  // namespace trireme::launch
