// SPDX-License-Identifier: Apache-2.0
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "trireme/base/log.h"
#include "trireme/base/process/flight_variables.h"
#include "trireme/launch/hang/hang_report.h"
#include "trireme/launch/supervisor_impl.h"

// Where a rank hangs, or is lost: whether the others go on without it, and with another.

namespace trireme::launch {

bool Supervisor::may_be_replaced(const Worker& gone) const {
  return !gone.report && !gone.saved_and_left() && can_go_on_without([](const Worker& w) {
    return w.failed() && !w.report && !w.saved_and_left();
  });
}

void Supervisor::see_what_others_spent() const {
  spec_.restarts->spend_until(spent_before_ + spec_.in_place->losses(), Clock::now());
}

bool Supervisor::replace(Worker& gone) {
  const int place = gone.rank;
  if (!spec_.in_place->lost(place, spec_.restarts->left(Clock::now()))) return false;
  see_what_others_spent();
  log_warn("{}: the others go on, and a new worker takes its place ({})",
           gone.hung ? hung_before_ : failure_sentence(as_failure(gone)),
           spec_.restarts->text(Clock::now()));
  ::kill(-gone.pid, SIGKILL);  // what it started
  replaced_.push_back(gone.pid);
  std::erase_if(workers_, [place](const Worker& w) { return w.rank == place; });
  start(plan_.workers.at(static_cast<size_t>(place)));
  return true;
}

void Supervisor::take_in_newcomers() {
  if (stage_ != Stage::running || !spec_.in_place || !spec_.in_place->awaits_any()) return;
  if (const int workers = spec_.in_place->take_in())
    log_info("a new worker is there: {} train from the next step on", workers);
}

int Supervisor::rank_of_process(pid_t pid, int said) const {
  const pid_t group = ::getpgid(pid);
  for (const Worker& worker : workers_)
    if (worker.pid == group) return rank_of(worker);
  for (const Worker& worker : workers_)
    if (rank_of(worker) == said) return said;
  return -1;
}

void Supervisor::look_for_hangs() {
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
                     several_nodes() ? hang->verdict.sentence : hang->verdict.cause,
                     hang->verdict.cause, may_restart_after(*hang)});
  kill_all();
}

bool Supervisor::others_go_on_without(const std::string& cause) {
  if (cause == spec_.cause_before || std::exchange(hung_before_, cause) == cause) return false;
  if (!can_go_on_without([](const Worker& w) { return w.hung; })) return false;
  for (Worker& worker : workers_)
    if (worker.hung && !worker.ended) ::kill(-worker.pid, SIGKILL);
  spec_.hangs->begin_anew();
  return true;
}

bool Supervisor::may_restart_after(const HangGuard::Hang& hang) const {
  if (spec_.restarts->left(Clock::now()) <= 0) return false;
  if (hang.verdict.cause != spec_.cause_before) return true;
  log_warn("{}, for the second time: not started again", hang.verdict.cause);
  return false;
}

std::string Supervisor::flight_folder() const {
  const EnvMap& env = plan_.workers.front().env;
  return flight_folder_in([&env](const char* name) {
    const auto found = env.find(name);
    return found != env.end() ? found->second : process_env(name);
  });
}

}  // namespace trireme::launch
