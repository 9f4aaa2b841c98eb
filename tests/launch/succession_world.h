// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "trireme/launch/membership/succession.h"

namespace trireme::launch {

/// The hosts of a job of up to 16 launchers, which are cut off, stopped and lost, one random event
/// after the other; and what has begun there. Time is virtual.
class SuccessionWorld {
 public:
  std::string fault;
  int begun = 0, gave_up = 0, claims_lost = 0, proceeded = 0, ended = 0;

 protected:
  explicit SuccessionWorld(uint64_t seed) : random_(seed) {}

  enum class Role { member, keeper, orphan, out };
  struct Agent {
    std::string token;
    bool alive = true;
    int64_t frozen_until = 0;
    int group = 0;  // hosts reach those of their group
    Role role = Role::member;
    Standing standing;
    Generation last;  // accepted
    std::vector<Generation> bases;
    bool last_began = false;
    int store = -1;            // who keeps it
    int64_t lost_since = -1;   // its connection
    int64_t acts = -1;         // the generation whose workers run
    int64_t workers_end = -1;  // when
    // Of an orphan:
    int64_t orphan_since = 0, busy_until = 0;
    bool yielded = false, rejoined = false;
    std::map<std::string, SuccessionView::Seen> seen;
    std::map<std::string, int64_t> heard;
    bool looking = false;
    // Of a keeper:
    std::set<int> clients, lost;
    std::map<int, int64_t> unheard;  // since when
    Generation proposal;
    bool proposed = false, breaking = false, follows_loss = false;
    int64_t proposed_at = 0, waits_until = 0, restart_at = 0;
    std::set<std::string> accepted;
    int64_t began = -1;
  };
  struct Later {
    int64_t at;
    std::function<void()> what;
  };

  int pick(int from, int to) { return std::uniform_int_distribution<int>(from, to)(random_); }
  void later(int most_ms, std::function<void()> what) {
    later_.push_back({now_ + pick(0, most_ms), std::move(what)});
  }
  int add() {
    const int i = static_cast<int>(agents_.size());
    Agent a;
    a.token = "t" + std::to_string(1000 + i);
    agents_.push_back(a);
    index_[a.token] = i;
    return i;
  }
  bool reaches(int a, int b) const {
    return a == b || agents_[static_cast<size_t>(a)].group == agents_[static_cast<size_t>(b)].group;
  }
  Agent& at(int i) { return agents_[static_cast<size_t>(i)]; }
  bool works(int i) { return at(i).alive && at(i).role != Role::out; }
  Member member(int i) { return {at(i).token, "h" + std::to_string(i), 1, at(i).token}; }

  void begin_first(int count) {
    Generation first{0, {}, at(0).token};
    for (int i = 0; i < count; ++i) first.members.push_back(member(i));
    for (int i = 0; i < count; ++i) {
      at(i).last = first;
      at(i).bases = {first};
      at(i).last_began = true;
      at(i).store = 0;
      at(i).standing = {Standing::in, 0, at(0).token, "", at(0).token};
      at(i).acts = 0;
      at(0).clients.insert(i);
    }
    at(0).role = Role::keeper;
    at(0).began = 0;
    at(0).proposal = first;
    history_ = {first};
    history_loss_ = {false};
  }

  void happen() {
    const int i = pick(0, static_cast<int>(agents_.size()) - 1);
    switch (pick(0, 9)) {
      case 0:
      case 1:
        at(i).alive = false;
        at(i).acts = -1;
        break;
      case 2:  // the host with the store
        for (Agent& a : agents_)
          if (a.alive && a.role == Role::keeper && pick(0, 1)) a.alive = false, a.acts = -1;
        break;
      case 3:
        at(i).frozen_until = now_ + pick(0, 30'000);
        break;
      case 4:
      case 5:
        at(i).group = pick(0, 2);
        break;
      case 6: {  // the network falls apart
        const int parts = pick(2, 3);
        for (Agent& a : agents_) a.group = pick(0, parts - 1);
        break;
      }
      case 7:
        for (Agent& a : agents_) a.group = 0;
        break;
      default: {  // one comes to whoever keeps a store
        if (agents_.size() >= 16) break;
        std::vector<int> keepers;
        for (size_t k = 0; k < agents_.size(); ++k)
          if (works(static_cast<int>(k)) && agents_[k].role == Role::keeper)
            keepers.push_back(static_cast<int>(k));
        if (keepers.empty()) break;
        const int k = keepers[static_cast<size_t>(pick(0, static_cast<int>(keepers.size()) - 1))];
        join(add(), k);
      }
    }
  }
  void join(int i, int keeper) {
    at(i).group = at(keeper).group;
    at(i).store = keeper;
    at(i).role = Role::member;
    at(keeper).clients.insert(i);
  }

  std::mt19937_64 random_;
  int64_t now_ = 0;
  bool place_ = false;  // where generations are claimed
  std::deque<Agent> agents_;
  std::map<std::string, int> index_;
  std::vector<Later> later_;
  std::vector<Generation> history_;  // that began
  std::vector<bool> history_loss_;
  std::map<int64_t, Generation> claims_;  // what follows each
};

}  // namespace trireme::launch
