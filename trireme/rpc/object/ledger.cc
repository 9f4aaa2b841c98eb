// SPDX-License-Identifier: Apache-2.0
#include "trireme/rpc/object/ledger.h"

#include <algorithm>

namespace trireme::rpc::detail {

void Ledger::Seen::add(uint64_t number) {
  if (contains(number)) return;
  beyond.insert(number);
  while (!beyond.empty() && *beyond.begin() == up_to + 1) {
    ++up_to;
    beyond.erase(beyond.begin());
  }
}

void Ledger::opened(Link link, int64_t peer) {
  links_[link] = peer;
  gone_.erase(peer);
}

void Ledger::lost(Link link) {
  const auto found = links_.find(link);
  if (found == links_.end()) return;
  const int64_t peer = found->second;
  links_.erase(found);
  const bool gone = std::none_of(links_.begin(), links_.end(),
                                 [&](const auto& other) { return other.second == peer; });
  if (gone) gone_.insert(peer);

  for (auto it = passed_.begin(); it != passed_.end();) {
    const auto passed = it++;
    if (passed->second.link == link) unpass(passed);
  }
  const auto of_link = [&](const auto& entry) { return entry.first == link; };
  std::erase_if(unsettled_, of_link);
  std::erase_if(marks_, of_link);
  std::vector<Life> lives;
  for (auto& [life, held] : held_) {
    std::erase_if(held.unsettled, of_link);
    if (held.link == link && held.state != State::broken) lives.push_back(life);
  }
  for (const Life life : lives) {
    Held& held = held_.at(life);
    held.state = State::broken;
    const auto current = current_.find(held.object);
    if (current != current_.end() && current->second == life) current_.erase(current);
    acts_.push_back(Broken{life});
    settle(held);
    end_if_unused(life);
  }
  std::vector<ObjectId> objects;
  for (auto& [object, owned] : owned_) {
    std::erase_if(owned.holds, of_link);
    if (gone && object.maker == peer && !owned.made && !owned.unborn) {
      owned.unborn = true;
      acts_.push_back(Unborn{object});
    }
    objects.push_back(object);
  }
  for (const ObjectId& object : objects) free_if_unused(object);
}

Ledger::Made Ledger::make(int64_t owner, Link link) {
  const ObjectId object{owner, me_, ++numbers_[owner]};
  const Life life = ++last_life_;
  const bool open = links_.contains(link);
  held_.emplace(life, Held{.object = object,
                           .state = open ? State::asking : State::broken,
                           .made = true,
                           .link = link});
  if (open)
    current_[object] = life;
  else
    acts_.push_back(Broken{life});
  return {object, life};
}

bool Ledger::claims(Life life, Link link) {
  const auto found = held_.find(life);
  if (found == held_.end() || found->second.state != State::asking) return false;
  found->second.link = link;
  return links_.contains(link);
}

void Ledger::answered(Life life, bool confirmed) {
  const auto found = held_.find(life);
  if (found == held_.end() || found->second.state != State::asking) return;
  Held& held = found->second;
  held.state = confirmed ? State::confirmed : State::refused;
  settle(held);
  end_if_unused(life);
}

void Ledger::settle(Held& held) {
  for (const auto& [link, token] : held.unsettled) {
    unsettled_.erase({link, token});
    acts_.push_back(Settle{link, token});
  }
  held.unsettled.clear();
}

std::optional<Ledger::Life> Ledger::read(const ObjectId& object, Link from, Token token) {
  if (marks_.erase({from, token}) > 0) return {};
  if (object.owner == me_) {
    acts_.push_back(Settle{from, token});
    if (!owned_.contains(object) && !may_come(object)) return {};
    ++owned_[object].uses;
    return 0;
  }
  const auto current = current_.find(object);
  Life life = 0;
  if (current != current_.end()) {
    life = current->second;
    ++held_.at(life).uses;
  } else {
    life = current_[object] = ++last_life_;
    held_.emplace(life, Held{.object = object});
    acts_.push_back(Claim{object, life});
  }
  Held& held = held_.at(life);
  if (held.state != State::asking) {
    acts_.push_back(Settle{from, token});
  } else if (links_.contains(from)) {
    held.unsettled.emplace_back(from, token);
    unsettled_.emplace(from, token);
  }
  return life;
}

void Ledger::use(const ObjectId& object, Life life) {
  if (life == 0)
    ++owned_.at(object).uses;
  else
    ++held_.at(life).uses;
}

void Ledger::drop(const ObjectId& object, Life life) {
  if (life == 0) {
    --owned_.at(object).uses;
    free_if_unused(object);
  } else {
    --held_.at(life).uses;
    end_if_unused(life);
  }
}

void Ledger::end_if_unused(Life life) {
  const auto found = held_.find(life);
  Held& held = found->second;
  if (held.uses > 0 || held.state == State::asking) return;
  if (held.state == State::confirmed || (held.made && held.state == State::refused))
    acts_.push_back(Release{held.link, held.object, life});
  const auto current = current_.find(held.object);
  if (current != current_.end() && current->second == life) current_.erase(current);
  held_.erase(found);
  acts_.push_back(Ended{life});
}

void Ledger::free_if_unused(const ObjectId& object) {
  const auto found = owned_.find(object);
  if (found == owned_.end() || found->second.uses > 0 || !found->second.holds.empty()) return;
  owned_.erase(found);
  acts_.push_back(Free{object});
}

Ledger::Token Ledger::pass(const ObjectId& object, Life life, Link to,
                           std::optional<uint64_t> answer_to) {
  const Token token = ++last_token_;
  if (!links_.contains(to)) return token;  // it will not arrive
  use(object, life);
  passed_.emplace(token, Passed{object, life, to, answer_to});
  return token;
}

void Ledger::unpass(std::map<Token, Passed>::iterator passed) {
  const Passed was = passed->second;
  passed_.erase(passed);
  drop(was.object, was.life);
}

void Ledger::settled(Link from, Token token) {
  const auto found = passed_.find(token);
  if (found != passed_.end() && found->second.link == from) unpass(found);
}

void Ledger::take_back(const std::vector<Token>& tokens) {
  for (const Token token : tokens)
    if (const auto found = passed_.find(token); found != passed_.end()) unpass(found);
}

void Ledger::call_failed(Link to, std::vector<Token> tokens, bool may_run) {
  std::erase_if(tokens, [&](Token token) { return !passed_.contains(token); });
  if (!tokens.empty()) acts_.push_back(Withdraw{to, std::move(tokens), may_run});
}

void Ledger::given_up(Link to, uint64_t answer_to) {
  for (auto it = passed_.begin(); it != passed_.end();) {
    const auto passed = it++;
    if (passed->second.link == to && passed->second.answer_to == answer_to) unpass(passed);
  }
}

std::vector<Ledger::Token> Ledger::withdraw(Link from, const std::vector<Token>& tokens,
                                            bool may_run) {
  std::vector<Token> unread;
  for (const Token token : tokens) {
    if (unsettled_.contains({from, token})) continue;
    unread.push_back(token);
    if (!may_run || !links_.contains(from)) continue;
    marks_.emplace(from, token);
    if (marks_.size() > kMostMarks) marks_.erase(marks_.begin());
  }
  return unread;
}

ObjectId Ledger::own() {
  const ObjectId object{me_, me_, ++numbers_[me_]};
  seen_[me_].add(object.number);
  owned_.emplace(object, Owned{.uses = 1, .made = true});
  return object;
}

bool Ledger::may_come(const ObjectId& object) const {
  const auto seen = seen_.find(object.maker);
  const bool came = seen != seen_.end() && seen->second.contains(object.number);
  return object.owner == me_ && !came && !gone_.contains(object.maker);
}

bool Ledger::make_for(const ObjectId& object, Link link, Life life) {
  const auto maker = links_.find(link);
  if (maker == links_.end() || maker->second != object.maker || !may_come(object)) return false;
  seen_[object.maker].add(object.number);
  Owned& owned = owned_[object];
  owned.made = true;
  owned.holds.emplace(link, life);
  return true;
}

bool Ledger::claimed(const ObjectId& object, Link link, Life life) {
  if (!links_.contains(link)) return false;
  if (!owned_.contains(object) && !may_come(object)) return false;
  owned_[object].holds.emplace(link, life);
  return true;
}

void Ledger::released(const ObjectId& object, Link link, Life life) {
  const auto from = links_.find(link);
  if (from == links_.end()) return;
  if (from->second == object.maker && may_come(object)) {  // it overtook what was to make it
    seen_[object.maker].add(object.number);
    const auto found = owned_.find(object);
    if (found != owned_.end()) {
      found->second.unborn = true;
      acts_.push_back(Unborn{object});
    }
  }
  const auto found = owned_.find(object);
  if (found == owned_.end()) return;
  found->second.holds.erase({link, life});
  free_if_unused(object);
}

std::set<int64_t> Ledger::users(const ObjectId& object) const {
  std::set<int64_t> users;
  const auto found = owned_.find(object);
  if (found == owned_.end()) return users;
  for (const auto& [link, life] : found->second.holds)
    if (const auto peer = links_.find(link); peer != links_.end() && peer->second != me_)
      users.insert(peer->second);
  return users;
}

}  // namespace trireme::rpc::detail
