// SPDX-License-Identifier: Apache-2.0
#include "trireme/launch/nodes/coordinator.h"

#include <algorithm>
#include <utility>

#include "trireme/base/check.h"
#include "trireme/base/log.h"
#include "trireme/launch/membership/places.h"
#include "trireme/launch/nodes/elastic_keys.h"
#include "trireme/launch/nodes/nodes.h"
#include "trireme/net/secret.h"

namespace trireme::launch {
namespace {

constexpr Duration kCoordinateEvery = std::chrono::milliseconds(50);

// Those that have lost their store have ended their workers before they come.
constexpr Duration kFollowersCome = std::chrono::seconds(5);
constexpr Duration kSilence = std::chrono::seconds(6);       // of a member that is lost
constexpr Duration kSilenceAgain = std::chrono::seconds(1);  // where it was silent before, too
constexpr Duration kAccept = std::chrono::seconds(15);       // by one that is connected
constexpr Duration kClaim = std::chrono::seconds(6);         // in a place that does not answer

MembershipRules rules_of(const RunOptions& options, bool goes_on) {
  MembershipRules rules;
  rules.least = options.least_nodes;
  rules.most = options.nodes;
  rules.last_call = goes_on ? kFollowersCome : options.last_call;
  rules.join_timeout = options.join_timeout;
  return rules;
}

int workers_of(const Generation& generation) {
  int workers = 0;
  for (const Member& member : generation.members) workers += member.workers;
  return workers;
}

}  // namespace

Coordinator::Coordinator(std::unique_ptr<Store> store, const RunOptions& options,
                         const net::Credentials& credentials, CoordinatorStart start)
    : store_(std::move(store)),
      membership_(rules_of(options, start.followers > 0), start.last.generation, start.followers),
      restarts_(options.max_restarts, options.restart_window),
      announced_(std::move(start.last)),
      before_(std::move(start.before)),
      follows_loss_(start.followers > 0),
      silence_(start.followers > 0 ? kSilenceAgain : kSilence),
      neighbours_(credentials),
      place_(claim_place(options)),
      us_(std::move(start.us)) {
  restarts_.spend_until(announced_.restarts, Clock::now());
  thread_ = std::thread([this] { run(); });
}

Coordinator::~Coordinator() {
  stop_ = true;
  thread_.join();
}

void Coordinator::run() {
  try {
    while (!stop_ && !over_) {
      look();
      std::this_thread::sleep_for(kCoordinateEvery);
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
  if (!over_ && waits_since_) try_to_begin();
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
    if (gone)
      left_.insert(member.token);
    else
      follows_loss_ = true;
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
        if (!retires_) announce(action.generation);
        break;
      case MembershipAction::break_off: {
        StopCause cause;
        cause.node = -1;
        cause.sentence = action.sentence;
        cause.may_restart = true;
        cause.counts = false;
        store_->compare_set(elastic::over(n), "", to_text(cause));
        broken_off_ = true;
        waits_since_.reset();
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
  if (announced_.job.empty()) {
    announced_.job = net::random_token();
    if (place_) announced_.claims_from = place_->first_free();
  }
  announced_.generation = generation;
  announced_.generation.keeper = us_;
  announced_.restarts = restarts_.spent();
  announced_.before = before_;
  store_->set(elastic::announced(n), to_text(announced_));
  store_->set(elastic::kNewest, std::to_string(n));
  waits_since_ = Clock::now();
  said_ = false;
}

/// What members of the generations before say to the one that is announced.
Coordinator::Support Coordinator::support() {
  Support support;
  const int64_t n = announced_.generation.number;
  const Duration waited = Clock::now() - *waits_since_;
  std::set<std::string> asked;
  for (const Generation& before : before_)
    for (const Member& m : before.members) {
      if (!asked.insert(m.token).second) continue;
      const auto here = here_.find(m.token);
      if (store_->try_get(elastic::accepted(n, m.token)))
        support.accepted.push_back(m.token);
      else if (left_.count(m.token) || (here != here_.end() && here->second.leaves))
        support.sights[m.token] = Sight::left;
      else if (here != here_.end()) {
        support.sights[m.token] = Sight::answers;
        support.complete = support.complete && waited >= kAccept;
      } else {
        support.sights[m.token] = Sight::silent;
      }
    }
  return support;
}

/// Members that are not connected: some have died, and some have lost this store for a moment.
void Coordinator::ask_those_that_came_back(Support& support) {
  std::vector<Member> lost;
  for (const Generation& before : before_)
    for (const Member& m : before.members)
      if (const auto s = support.sights.find(m.token);
          s != support.sights.end() && s->second == Sight::silent && m.token != us_ &&
          std::none_of(lost.begin(), lost.end(),
                       [&](const Member& other) { return other.token == m.token; }))
        lost.push_back(m);
  const auto seen = neighbours_.look(lost);
  const Duration waited = Clock::now() - *waits_since_;
  for (const Member& m : lost) {
    const SuccessionView::Seen& one = seen.at(m.token);
    support.sights[m.token] = one.sight;
    if (one.sight == Sight::silent) support.complete = support.complete && one.unheard >= silence_;
    if (one.sight != Sight::answers) continue;
    const Standing& s = one.standing;
    const int64_t n = announced_.generation.number;
    if (s.is == Standing::left) {
      support.sights[m.token] = Sight::left;
    } else if (s.is != Standing::promised && s.of == us_ && s.generation == n) {
      support.accepted.push_back(m.token);
    } else if (s.generation < n && is_promise(s)) {
      support.accepted.push_back(m.token);
      support.promised.emplace_back(m, s);
    } else {
      support.complete = support.complete && waited >= kAccept;
      const Generation& last = before_.front();
      if (s.is != Standing::free || s.generation != last.number || s.of != last.keeper) continue;
      Standing promised = s;
      promised.is = Standing::promised;
      promised.to = us_;
      neighbours_.set_standing(m, s, promised);
    }
  }
}

/// To follow this launcher; or it was told of a generation of ours that did not begin.
bool Coordinator::is_promise(const Standing& s) const {
  return (s.is == Standing::promised && s.to == us_) ||
         (s.is == Standing::free && s.of == us_ && s.generation > before_.front().number);
}

/// A promise is void when we die, and others that begin with us may be unknown to who gave it: it
/// may not count for a generation that it has not accepted. False: some have not been told yet.
bool Coordinator::promises_are_kept(const Support& support) {
  for (const auto& [member, standing] : support.promised)
    neighbours_.set_standing(member, standing,
                             Standing{Standing::free, announced_.generation.number, us_});
  return support.promised.empty();
}

void Coordinator::try_to_begin() {
  const auto verdict_on = [this](const Support& support) {
    Verdict verdict = Verdict::go_on;
    for (const Generation& before : before_)
      verdict =
          std::max(verdict, verdict_of(count_quorum(before, support.accepted, support.sights)));
    return verdict;
  };
  Support of = support();
  if (!of.complete) return;
  Verdict verdict = verdict_on(of);
  if (verdict != Verdict::go_on) {
    ask_those_that_came_back(of);
    if (!of.complete) return;
    verdict = verdict_on(of);
  }
  if (verdict == Verdict::give_up)
    return give_up(fmt::format(
        "{} of the {} nodes of the job are together here: the others may go on, and not these",
        of.accepted.size(), before_.front().members.size()));
  if (promises_are_kept(of)) claim(verdict);
}

void Coordinator::claim(Verdict verdict) {
  if (verdict == Verdict::claim && !place_)
    return give_up(
        "half of the job's nodes do not answer, and may go on without these: to let one half go "
        "on, name a file that all nodes see with --rdzv-conf shared_file=PATH (trireme train uses "
        "the run folder, and --rdzv-backend=etcd uses etcd)");
  if (!place_ || !follows_loss_) return begun();
  const int64_t n = announced_.generation.number;
  const ClaimPlace::Claim ours{announced_.claims_from + n, us_};
  try {
    // The oldest first: what has followed it may be what we follow.
    for (size_t b = before_.size(); b-- > 0;) {
      const auto claim =
          place_->claim(announced_.job, announced_.claims_from + before_[b].number, ours);
      const bool is_known =
          b > 0 && claim == ClaimPlace::Claim{announced_.claims_from + before_[b - 1].number,
                                              before_[b - 1].keeper};
      if (claim != ours && !is_known)
        return give_up(fmt::format(
            "other nodes of the job go on without these: they claimed generation {} first, in {}",
            claim.next, place_->text()));
    }
  } catch (const Error& error) {
    if (verdict == Verdict::go_on && Clock::now() - *waits_since_ > kClaim) {
      log_warn(
          "no claim of generation {} in {} ({}): nodes that are cut off are not kept from "
          "publishing what they compute",
          n, place_->text(), error.what());
      return begun();
    }
    if (Clock::now() - *waits_since_ > 2 * kClaim)
      return give_up(
          fmt::format("half of the job's nodes do not answer, and {} does not say "
                      "whether they go on: {}",
                      place_->text(), error.what()));
    if (!std::exchange(said_, true))
      log_warn("{} does not answer yet: {}", place_->text(), error.what());
    return;
  }
  begun();
}

void Coordinator::begun() {
  waits_since_.reset();
  follows_loss_ = false;
  silence_ = kSilence;
  before_ = {announced_.generation};
  store_->set(elastic::begun(announced_.generation.number), "ok");
  log_info("{} of {} node(s) begin with {} workers", announced_.generation.members.size(),
           membership_.present(), workers_of(announced_.generation));
}

void Coordinator::give_up(const std::string& sentence) {
  waits_since_.reset();
  end_job(sentence);
  StopCause cause;
  cause.node = -1;
  cause.sentence = sentence;
  cause.counts = false;
  store_->compare_set(elastic::over(announced_.generation.number), "", to_text(cause));
}

/// All workers of a generation that was broken off.
void Coordinator::ended() {
  const StopCause cause =
      read_stop_cause(store_->try_get(elastic::over(membership_.generation().number)).value_or(""));
  const Clock::time_point now = Clock::now();
  restarts_.spend_until(announced_.restarts + workers_replaced(), now);
  if (!cause.may_restart || (cause.counts && restarts_.left(now) <= 0))
    return end_job(cause.sentence);
  if (cause.counts) restarts_.spend(now);
}

/// In the generation that has ended, by launchers whose workers went on without those.
int Coordinator::workers_replaced() const {
  const Generation& last = announced_.generation;
  const auto text =
      store_->try_get(generations::newest(static_cast<int>(membership_.generation().number)));
  return text ? Places::read(*text, workers_of(last)).losses() : 0;
}

void Coordinator::end_job(const std::string& how) {
  over_ = true;
  store_->compare_set(elastic::kJobOver, "", how);
}

}  // namespace trireme::launch
