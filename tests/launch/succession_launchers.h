// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "tests/launch/succession_world.h"

namespace trireme::launch {

/// What launchers do there: the same as nodes/ does with what next_step() and verdict_of() say.
/// What each sees of the others is up to a second old, and what it asks of them arrives later, or
/// never.
class SuccessionLaunchers : public SuccessionWorld {
 protected:
  using SuccessionWorld::SuccessionWorld;

  void end_workers(Agent& a) {
    if (a.acts >= 0 && a.workers_end < 0) a.workers_end = now_ + pick(0, 4000);
  }

  // What ElasticNodes does with a store.
  void take_part(int i) {
    Agent& a = at(i);
    Agent& k = at(a.store);
    const bool heard = k.alive && k.role == Role::keeper && reaches(i, a.store) &&
                       !(k.lost.count(i) && i != a.store);
    if (!heard) {
      if (a.lost_since < 0) a.lost_since = now_;
      const bool at_once = reaches(i, a.store) && !(k.alive && k.role == Role::keeper);
      if (now_ - a.lost_since < (at_once ? 0 : 4500)) return;
      end_workers(a);
      if (a.acts >= 0) return;
      if (a.last.number < 0) {
        a.role = Role::out;  // it knows nobody: it comes again, as another
        return;
      }
      a.role = Role::orphan;
      a.orphan_since = now_;
      a.looking = false;
      a.seen.clear();
      a.heard.clear();
      if (a.standing.is == Standing::in) a.standing.is = Standing::free;
      return;
    }
    a.lost_since = -1;
    if (k.frozen_until > now_ && i != a.store) return;
    if (k.breaking) end_workers(a);
    if (k.began >= 0 && k.began == a.last.number && a.standing.is != Standing::in)
      a.standing = {Standing::in, a.last.number, k.token, "", k.token};  // it came back in time
    if (!k.proposed && k.began < 0) return;
    const Generation& g = k.proposal;
    const bool is_member = std::any_of(g.members.begin(), g.members.end(),
                                       [&](const Member& m) { return m.token == a.token; });
    if (k.proposed && is_member && g.number > a.last.number && a.acts < 0) {
      const bool free_to = a.standing.is != Standing::promised || a.standing.to == k.token;
      if (!free_to) {
        a.lost_since = now_ - 10'000;  // another has its word
        k.lost.insert(i);
        return;
      }
      a.last = g;
      a.bases = k.bases;
      a.last_began = false;
      a.yielded = false;
      a.standing = {Standing::in, g.number, k.token, "", k.token};
      later(1000, [this, i, keeper = a.store, n = g.number, token = a.token] {
        if (reaches(i, keeper) && at(keeper).proposal.number == n)
          at(keeper).accepted.insert(token);
      });
    }
    if (k.began == a.last.number && !a.last_began && is_member) {
      a.last_began = true;
      a.bases = {a.last};
      if (!k.breaking) a.acts = a.last.number;
    }
  }

  // What the coordinator does.
  void keep(int i) {
    Agent& k = at(i);
    for (const int c : k.clients) {
      if (k.lost.count(c)) continue;
      if (at(c).alive && reaches(i, c) && at(c).role != Role::out && at(c).store == i) {
        k.unheard.erase(c);
        continue;
      }
      const int64_t since = k.unheard.emplace(c, now_).first->second;
      if (now_ - since >= (reaches(i, c) ? 0 : 4000)) k.lost.insert(c);
    }
    const auto member_of = [&](int c, const Generation& g) {
      return std::any_of(g.members.begin(), g.members.end(),
                         [&](const Member& m) { return m.token == at(c).token; });
    };
    bool loss = false, news = false;
    for (const int c : k.clients) {
      if (k.lost.count(c) && member_of(c, k.proposal)) loss = true;
      if (!k.lost.count(c) && !member_of(c, k.proposal)) news = true;
    }
    if (k.began == k.proposal.number && !k.breaking && (loss || news)) k.breaking = true;
    if (k.proposed && loss) k.breaking = true, k.proposed = false;
    if (loss) k.follows_loss = true;
    if (k.breaking) {
      for (const int c : k.clients)
        if (!k.lost.count(c) && at(c).acts >= 0) return;
      k.breaking = false;
      propose(i);
    } else if (!k.proposed && k.began != k.proposal.number) {
      // After another's store: who has promised comes within seconds.
      if (now_ >= k.waits_until) propose(i);
    }
    if (k.proposed) try_to_begin(i);
  }

  void propose(int i) {
    Agent& k = at(i);
    Generation next{k.proposal.number + 1, {}, k.token};
    for (const Member& m : k.proposal.members)
      if (const int c = index_[m.token]; k.clients.count(c) && !k.lost.count(c))
        next.members.push_back(m);
    for (const int c : k.clients)
      if (!k.lost.count(c) && std::none_of(next.members.begin(), next.members.end(),
                                           [&](auto& m) { return m.token == at(c).token; }))
        next.members.push_back(member(c));
    k.proposal = next;
    k.proposed = true;
    k.proposed_at = now_;
    k.accepted.clear();
  }

  void try_to_begin(int i) {
    Agent& k = at(i);
    std::map<std::string, Sight> sights;
    std::vector<std::string> accepted(k.accepted.begin(), k.accepted.end());
    std::vector<int> promised;
    bool waits = false;
    for (const Generation& base : k.bases)
      for (const Member& m : base.members) {
        const int c = index_[m.token];
        if (k.accepted.count(m.token)) continue;
        if (k.clients.count(c) && !k.lost.count(c)) {
          waits = true;
          continue;
        }
        if (!reaches(i, c)) {
          sights[m.token] = Sight::silent;
          waits |= now_ - k.proposed_at < 6000;
        } else if (!at(c).alive || (at(c).role == Role::out && !at(c).rejoined)) {
          sights[m.token] = Sight::refused;
        } else {
          sights[m.token] = Sight::answers;
          const Standing& s = at(c).standing;
          const bool told =
              s.is != Standing::promised && s.of == k.token && s.generation == k.proposal.number;
          const bool promises = s.generation < k.proposal.number &&
                                ((s.is == Standing::promised && s.to == k.token) ||
                                 (s.is == Standing::free && s.of == k.token &&
                                  s.generation > k.bases.front().number));
          if (told || promises) accepted.push_back(m.token);
          if (promises) promised.push_back(c);
          if (!told && !promises) waits |= now_ - k.proposed_at < 15'000;
          if (!promises && s.is == Standing::free && s.generation <= k.bases.front().number)
            later(1000, [this, i, c, before = s, token = k.token] {
              if (reaches(i, c) && at(c).standing == before)
                at(c).standing.is = Standing::promised, at(c).standing.to = token;
            });
        }
      }
    if (waits) return;
    Verdict verdict = Verdict::go_on;
    for (const Generation& base : k.bases)
      verdict = std::max(verdict, verdict_of(count_quorum(base, accepted, sights)));
    if (verdict != Verdict::give_up && !promised.empty()) {
      for (const int c : promised)
        later(500, [this, i, c, before = at(c).standing, n = k.proposal.number, token = k.token] {
          if (reaches(i, c) && at(c).alive && at(c).standing == before)
            at(c).standing = {Standing::free, n, token};
        });
      return;
    }
    if (!claim_if_needed(i, verdict)) return leave(i);
    const Generation& g = k.proposal;
    const Generation& newest = history_.back();
    const bool knows_newest = std::any_of(k.bases.begin(), k.bases.end(), [&](const Generation& b) {
      return b.number == newest.number;
    });
    if (!knows_newest)
      fault = "two parts of the job go on: generation " + std::to_string(g.number) +
              " follows another than " + std::to_string(newest.number);
    if (g.number <= newest.number) fault = "a number that was there before";
    std::set<std::string> tokens;
    for (const Member& m : g.members) tokens.insert(m.token);
    if (tokens.size() != g.members.size()) fault = "a launcher that has two ranks";
    history_.push_back(g);
    history_loss_.push_back(k.follows_loss);
    ++begun;
    k.began = g.number;
    k.bases = {g};
    k.proposed = false;
    k.follows_loss = false;
  }

  /// False: another has the number, or nobody could say so.
  bool claim_if_needed(int i, Verdict verdict) {
    Agent& k = at(i);
    if (verdict == Verdict::give_up || (verdict == Verdict::claim && !place_)) return false;
    if (!place_ || (verdict == Verdict::go_on && !k.follows_loss)) return true;
    // The oldest first.
    for (size_t b = k.bases.size(); b-- > 0;) {
      const auto claim = claims_.emplace(k.bases[b].number, Generation(k.proposal)).first->second;
      if (claim.keeper == k.token) continue;
      if (b > 0 && claim.number == k.bases[b - 1].number && claim.keeper == k.bases[b - 1].keeper)
        continue;
      ++claims_lost;
      return false;
    }
    return true;
  }
  void leave(int i) {
    ++gave_up;
    at(i).role = Role::out;
    at(i).standing.is = Standing::left;
    at(i).acts = -1;
  }

  // What SuccessionRound does.
  void succeed(int i) {
    Agent& a = at(i);
    if (now_ < a.busy_until) return;
    std::vector<Generation> both = a.bases;
    if (std::none_of(both.begin(), both.end(),
                     [&](const Generation& g) { return g.number == a.last.number; }))
      both.insert(both.begin(), a.last);
    if (!a.looking) {
      a.looking = true;
      a.seen.clear();
      for (const Generation& g : both)
        for (const Member& m : g.members) {
          const int c = index_[m.token];
          if (c == i) continue;
          later(900, [this, i, c] { look(i, c); });
        }
      a.busy_until = now_ + pick(900, 1200);
      return;
    }
    a.looking = false;
    SuccessionView view{a.token,  a.standing, both.front(),
                        {},       a.seen,     std::chrono::milliseconds(now_ - a.orphan_since),
                        a.yielded};
    view.before.assign(both.begin() + 1, both.end());
    SuccessionStep step = next_step(view);
    while (step.kind == SuccessionStep::rejoin) {
      const int k = index_[step.who];
      const bool answers =
          works(k) && reaches(i, k) && at(k).role == Role::keeper && at(k).frozen_until <= now_;
      if (!answers || at(k).began > a.last.number) break;
      view.not_begun.emplace(step.generation, step.keeper);
      step = next_step(view);
    }
    switch (step.kind) {
      case SuccessionStep::wait:
        break;
      case SuccessionStep::ask:
        ask(i, step.asked);
        break;
      case SuccessionStep::yield:
        a.yielded = true;
        a.standing.to = step.who;
        break;
      case SuccessionStep::follow:
      case SuccessionStep::rejoin:
        follow(i, index_[step.who], step.kind == SuccessionStep::rejoin);
        break;
      case SuccessionStep::decided:
        become_keeper(i, both);
        break;
      case SuccessionStep::give_up:
        leave(i);
        break;
    }
  }
  void look(int i, int c) {
    SuccessionView::Seen seen;
    int64_t& heard = at(i).heard.emplace(at(c).token, at(i).orphan_since).first->second;
    if (!reaches(i, c) || pick(0, 30) == 0)
      seen.sight = Sight::silent;
    else if (!at(c).alive)
      seen.sight = Sight::refused;
    else
      seen = {at(c).role == Role::out && !at(c).rejoined ? Sight::refused : Sight::answers,
              at(c).standing};
    if (seen.sight != Sight::silent) heard = now_;
    seen.unheard = std::chrono::milliseconds(now_ - heard);
    at(i).seen[at(c).token] = seen;
  }
  void ask(int i, const std::vector<std::string>& asked) {
    Agent& a = at(i);
    const auto promise = [](Standing& s, const std::string& to) {
      s.is = Standing::promised;
      s.to = to;
    };
    if (std::count(asked.begin(), asked.end(), a.token)) promise(a.standing, a.token);
    if (a.standing.is != Standing::promised || a.standing.to != a.token) return;
    for (const std::string& token : asked) {
      const int c = index_[token];
      if (c == i) continue;
      later(3000, [this, i, c, before = a.seen[token].standing, promise] {
        if (reaches(i, c) && at(c).alive && at(c).standing == before && pick(0, 20))
          promise(at(c).standing, at(i).token);
      });
    }
    a.busy_until = now_ + pick(0, 2000);
  }
  void follow(int i, int k, bool as_newcomer) {
    Agent& a = at(i);
    Agent& keeper = at(k);
    if (!works(k) || keeper.role != Role::keeper || !reaches(i, k) || keeper.frozen_until > now_)
      return;
    if (as_newcomer || keeper.lost.count(i)) {
      // Its place is taken by one that nobody has lost.
      if (agents_.size() >= 40) return;
      a.role = Role::out;
      // Under its old name its table says that it is with the other one.
      a.rejoined = true;
      if (as_newcomer) a.standing = {Standing::in, a.last.number, a.last.keeper, "", keeper.token};
      const int again = add();
      at(again).group = at(i).group;
      join(again, k);
      return;
    }
    a.store = k;
    a.role = Role::member;
    a.lost_since = -1;
    keeper.clients.insert(i);
  }
  void become_keeper(int i, const std::vector<Generation>& both) {
    Agent& a = at(i);
    a.role = Role::keeper;
    a.store = i;
    a.lost_since = -1;
    a.clients = {i};
    a.lost.clear();
    a.unheard.clear();
    a.bases = both;
    a.proposal = both.front();
    a.proposed = a.breaking = false;
    a.follows_loss = true;
    a.began = -1;
    a.waits_until = now_ + 5000;
  }
};

}  // namespace trireme::launch
