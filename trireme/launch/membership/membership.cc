// SPDX-License-Identifier: Apache-2.0
#include "trireme/launch/membership/membership.h"

#include <algorithm>
#include <utility>

#include "trireme/base/check.h"

namespace trireme::launch {
namespace {

// Launchers that come one after the other break a generation off once.
constexpr Duration kNewcomersSettle = std::chrono::seconds(1);

}  // namespace

Membership::Membership(MembershipRules rules) : rules_(rules) {
  check<UsageError>(rules_.least >= 1 && rules_.least <= rules_.most,
                    "{} to {} nodes: the first number is at least 1 and not above the second",
                    rules_.least, rules_.most);
}

Membership::Membership(MembershipRules rules, Generation last, int expected)
    : rules_(rules), expected_(expected), generation_(std::move(last)) {}

std::vector<MembershipAction> Membership::on(const MembershipEvent& event, Clock::time_point now) {
  switch (event.kind) {
    case MembershipEvent::came:
      come(event.member, now);
      break;
    case MembershipEvent::lost:
    case MembershipEvent::leaves:
      go(event, now);
      break;
    case MembershipEvent::ended:
      std::erase_if(present_, [&](Present& p) {
        if (p.member.token == event.member.token) p.ended = true;
        return p.ended && p.leaves;
      });
      break;
    case MembershipEvent::broken_off:
      if (stage_ == Stage::running) stage_ = Stage::ending;
      break;
  }
  return tick(now);
}

std::vector<MembershipAction> Membership::tick(Clock::time_point now) {
  switch (stage_) {
    case Stage::gathering:
      return while_gathering(now);
    case Stage::running:
      return while_running(now);
    case Stage::ending:
      return while_ending(now);
    case Stage::over:
      break;
  }
  return {};
}

void Membership::come(const Member& member, Clock::time_point now) {
  for (const Present& p : present_)
    if (p.member.token == member.token) return;
  Present p{.member = member, .since = now, .from = now};
  const auto found = losses_.find(member.host);
  if (found != losses_.end() && now - found->second.last < rules_.forgiven_after) {
    Duration out = rules_.sit_out;
    for (int i = 1; i < found->second.count && out < rules_.longest_sit_out; ++i) out *= 2;
    p.from = now + std::min(out, rules_.longest_sit_out);
  }
  const int place = begun_ ? -1 : number_of(member.token);
  if (place < 0) return present_.push_back(std::move(p));
  const auto behind = std::find_if(present_.begin(), present_.end(), [&](const Present& other) {
    const int theirs = number_of(other.member.token);
    return theirs < 0 || theirs > place;
  });
  present_.insert(behind, std::move(p));
}

void Membership::go(const MembershipEvent& event, Clock::time_point now) {
  const auto it = std::find_if(present_.begin(), present_.end(), [&](const Present& p) {
    return p.member.token == event.member.token;
  });
  if (it == present_.end()) return;
  const std::string host = it->member.host;
  const bool lost = event.kind == MembershipEvent::lost;
  // The workers of one that leaves are waited for.
  it->leaves = true;
  if (lost || it->ended) present_.erase(it);
  if (lost) {
    Losses& losses = losses_[host];
    if (losses.count > 0 && now - losses.last >= rules_.forgiven_after) losses.count = 0;
    ++losses.count;
    losses.last = now;
  }
  const int number = number_of(event.member.token);
  if (stage_ != Stage::running || number < 0) return;
  stage_ = Stage::ending;
  broken_off_ = lost ? fmt::format(
                           "node {} ({}) is gone: its launcher ended without a word, or its "
                           "host or the network to it did",
                           number, host)
                     : fmt::format("node {} ({}) was asked to stop and leaves", number, host);
}

std::vector<MembershipAction> Membership::while_gathering(Clock::time_point now) {
  if (!gathering_since_) gathering_since_ = now;
  std::vector<Present> ready;
  for (const Present& p : present_)
    if (now >= p.from && !p.leaves && static_cast<int>(ready.size()) < rules_.most)
      ready.push_back(p);
  const int count = static_cast<int>(ready.size());
  if (count < rules_.least) {
    enough_since_.reset();
    if (now - *gathering_since_ < rules_.join_timeout) return {};
    stage_ = Stage::over;
    return {{MembershipAction::give_up,
             {},
             fmt::format("{} of at least {} nodes were there after {:.0f} s: start 'trireme run' "
                         "with the same flags on more, or see why they ended",
                         count, rules_.least,
                         std::chrono::duration<double>(now - *gathering_since_).count())}};
  }
  if (!enough_since_) enough_since_ = now;
  const int hoped_for = expected_ > 0 ? std::min(expected_, rules_.most) : rules_.most;
  if (!begun_ && count < hoped_for && now - *enough_since_ < rules_.last_call) return {};
  return {begin(std::move(ready))};
}

MembershipAction Membership::begin(std::vector<Present> members) {
  ++generation_.number;
  generation_.members.clear();
  for (Present& p : members) {
    p.ended = false;
    generation_.members.push_back(p.member);
  }
  // Members first, in their order, for the next time.
  for (Present& p : present_)
    if (number_of(p.member.token) < 0) members.push_back(std::move(p));
  present_ = std::move(members);
  stage_ = Stage::running;
  begun_ = true;
  gathering_since_.reset();
  enough_since_.reset();
  return {MembershipAction::begin, generation_, ""};
}

std::vector<MembershipAction> Membership::while_running(Clock::time_point now) {
  if (static_cast<int>(generation_.members.size()) == rules_.most) return {};
  for (const Present& p : present_)
    if (p.ended && number_of(p.member.token) >= 0) return {};
  for (const Present& p : present_) {
    if (number_of(p.member.token) >= 0 || now < p.from || now - p.since < kNewcomersSettle)
      continue;
    stage_ = Stage::ending;
    return {break_off(fmt::format("a node ({}) has come", p.member.host))};
  }
  return {};
}

std::vector<MembershipAction> Membership::while_ending(Clock::time_point now) {
  std::vector<MembershipAction> actions;
  if (!broken_off_.empty()) actions.push_back(break_off(std::exchange(broken_off_, "")));
  for (const Present& p : present_)
    if (!p.ended) return actions;
  stage_ = Stage::gathering;
  gathering_since_ = now;
  actions.push_back({MembershipAction::all_ended, generation_, ""});
  return actions;
}

MembershipAction Membership::break_off(std::string sentence) {
  return {MembershipAction::break_off, generation_, std::move(sentence)};
}

int Membership::number_of(const std::string& token) const {
  for (size_t i = 0; i < generation_.members.size(); ++i)
    if (generation_.members[i].token == token) return static_cast<int>(i);
  return -1;
}

}  // namespace trireme::launch
