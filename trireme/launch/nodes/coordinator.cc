// SPDX-License-Identifier: Apache-2.0
#include "trireme/launch/nodes/coordinator.h"

#include <utility>

#include "trireme/base/check.h"
#include "trireme/base/log.h"
#include "trireme/launch/membership/announcement.h"
#include "trireme/launch/nodes/elastic_keys.h"
#include "trireme/launch/nodes/nodes.h"

namespace trireme::launch {
namespace {

constexpr Duration kLookEvery = std::chrono::milliseconds(50);

MembershipRules rules_of(const RunOptions& options) {
  MembershipRules rules;
  rules.least = options.least_nodes;
  rules.most = options.nodes;
  rules.last_call = options.last_call;
  rules.join_timeout = options.join_timeout;
  return rules;
}

int workers_of(const Generation& generation) {
  int workers = 0;
  for (const Member& member : generation.members) workers += member.workers;
  return workers;
}

}  // namespace

Coordinator::Coordinator(std::unique_ptr<Store> store, const RunOptions& options)
    : store_(std::move(store)),
      membership_(rules_of(options)),
      restarts_(options.max_restarts, options.restart_window),
      thread_([this] { run(); }) {}

Coordinator::~Coordinator() {
  stop_ = true;
  thread_.join();
}

void Coordinator::run() {
  try {
    while (!stop_ && !over_) {
      look();
      std::this_thread::sleep_for(kLookEvery);
    }
  } catch (const std::exception& error) {
    log_error("nobody decides any more which nodes are in the job: {}", error.what());
    try {
      StopCause cause;
      cause.node = -1;
      cause.sentence =
          fmt::format("the launcher that keeps the job's store failed: {}", error.what());
      cause.counts = false;
      end_job(cause.sentence);
      store_->compare_set(elastic::over(membership_.generation().number), "", to_text(cause));
    } catch (const std::exception& again) {
      log_error("the other nodes were not told: {}", again.what());
    }
  }
}

void Coordinator::look() {
  see_arrivals();
  if (membership_.generation().number >= 0) see_workers_end();
  if (!over_) see_departures();
  if (!over_) act(membership_.tick(Clock::now()));
}

void Coordinator::see_arrivals() {
  while (const auto text = store_->try_get(elastic::came(arrivals_ + 1))) {
    ++arrivals_;
    Member member;
    try {
      member = read_member(*text);
    } catch (const Corrupt& error) {
      log_warn("a launcher that came is not taken: {}", error.what());
      continue;
    }
    here_.emplace(member.token, Launcher());
    act(membership_.on({MembershipEvent::came, member}, Clock::now()));
  }
}

void Coordinator::see_departures() {
  for (auto it = here_.begin(); it != here_.end();) {
    Member member;
    member.token = it->first;
    if (!it->second.leaves && store_->try_get(elastic::leaves(member.token))) {
      it->second.leaves = true;
      act(membership_.on({MembershipEvent::leaves, member}, Clock::now()));
    }
    const bool gone = store_->try_get(elastic::gone(member.token)).has_value();
    if (!gone && !store_->try_get(elastic::lost(member.token))) {
      ++it;
      continue;
    }
    it = here_.erase(it);
    act(membership_.on({gone ? MembershipEvent::ended : MembershipEvent::lost, member},
                       Clock::now()));
  }
}

void Coordinator::see_workers_end() {
  const int64_t n = membership_.generation().number;
  if (!broken_off_) {
    const auto over = store_->try_get(elastic::over(n));
    if (over && *over != elastic::kAllDone) {
      broken_off_ = true;
      act(membership_.on({MembershipEvent::broken_off, {}}, Clock::now()));
    }
  }
  bool all = membership_.running();
  for (const Member& member : membership_.generation().members) {
    const auto it = here_.find(member.token);
    if (it == here_.end()) continue;
    if (!it->second.ended)
      if (const auto how = store_->try_get(elastic::ended(n, member.token))) {
        it->second.ended = true;
        well_ = well_ && *how == elastic::kEndedWell;
        act(membership_.on({MembershipEvent::ended, member}, Clock::now()));
      }
    all = all && it->second.ended;
  }
  // Those that did not end well say why themselves, a moment later.
  if (all && well_ && membership_.running()) {
    store_->compare_set(elastic::over(n), "", elastic::kAllDone);
    if (store_->try_get(elastic::over(n)) != elastic::kAllDone) return;
    store_->set(elastic::all_ended(n), "ok");
    end_job(elastic::kAllDone);
  }
}

void Coordinator::act(const std::vector<MembershipAction>& actions) {
  for (const MembershipAction& action : actions) {
    const int64_t n = action.generation.number;
    switch (action.kind) {
      case MembershipAction::begin:
        announce(action.generation);
        break;
      case MembershipAction::break_off: {
        StopCause cause;
        cause.node = -1;
        cause.sentence = action.sentence;
        cause.may_restart = true;
        cause.counts = false;
        store_->compare_set(elastic::over(n), "", to_text(cause));
        broken_off_ = true;
        break;
      }
      case MembershipAction::all_ended:
        store_->set(elastic::all_ended(n), "ok");
        ended();
        break;
      case MembershipAction::give_up:
        end_job(action.sentence);
        break;
    }
  }
}

void Coordinator::announce(const Generation& generation) {
  const int64_t n = generation.number;
  broken_off_ = false;
  well_ = true;
  for (const Member& member : generation.members) here_[member.token].ended = false;
  store_->set(elastic::announced(n), to_text(Announcement{generation, restarts_.spent()}));
  store_->set(elastic::kNewest, std::to_string(n));
  log_info("{} of {} node(s) begin with {} workers", generation.members.size(),
           membership_.present(), workers_of(generation));
}

/// All workers of a generation that was broken off.
void Coordinator::ended() {
  const StopCause cause =
      read_stop_cause(store_->try_get(elastic::over(membership_.generation().number)).value_or(""));
  const Clock::time_point now = Clock::now();
  if (!cause.may_restart || (cause.counts && restarts_.left(now) <= 0))
    return end_job(cause.sentence);
  if (cause.counts) restarts_.spend(now);
}

void Coordinator::end_job(const std::string& how) {
  over_ = true;
  store_->compare_set(elastic::kJobOver, "", how);
}

}  // namespace trireme::launch
