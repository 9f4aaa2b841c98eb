// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <tuple>
#include <variant>
#include <vector>

#include "trireme/rpc/object/ledger.h"

// Workers that are no more than their ledgers, with messages that overtake each other: they make,
// pass on, drop, break and die as a seed says.
namespace trireme::rpc_ledger_test {

using rpc::detail::Ledger;
using rpc::detail::ObjectId;

/// A user's reference: a use of a life (0: of an own object).
struct Ref {
  ObjectId object;
  uint64_t life;
};

struct Worker {
  int64_t number;
  std::unique_ptr<Ledger> ledger;
  bool dead = false;
  std::vector<Ref> refs;
  std::map<int64_t, uint64_t> link_to;  // open links, by peer
  std::map<uint64_t, int64_t> peer_of;  // by link
};

struct Make {
  ObjectId object;
  uint64_t life;
};
struct Made {
  uint64_t life;
  bool ok;
};
struct Claimed {
  uint64_t life;
  bool ok;
};
/// A call with references among its arguments, or its answer.
struct Pass {
  ObjectId object;
  uint64_t token;
  uint64_t call;
  bool answer;
};
struct PassEnded {  // to the sender: the handler's answer
  uint64_t token;
  bool failed;
};
struct GiveUp {
  uint64_t call;
};
struct Unread {
  std::vector<uint64_t> tokens;
};
using Body = std::variant<Make, Made, Ledger::Claim, Claimed, Ledger::Release, Ledger::Settle,
                          Ledger::Withdraw, Unread, Pass, PassEnded, GiveUp>;
struct Message {
  int64_t from, to;
  uint64_t link_from;  // of the sender: one session, two numbers
  Body body;
};

class World {
 public:
  World(int workers, uint64_t seed) : random_(seed) {
    for (int i = 1; i <= workers; ++i) {
      workers_[i].number = i;
      workers_[i].ledger = std::make_unique<Ledger>(i);
    }
    for (int a = 1; a <= workers; ++a)
      for (int b = 1; b < a; ++b) connect(a, b);
  }

  void run(int steps, bool deaths) {
    for (int i = 0; i < steps && failures_.empty(); ++i) {
      const int what = draw(100);
      Worker& worker = any();
      if (worker.dead) continue;
      if (what < 45)
        deliver_one();
      else if (what < 55)
        make(worker);
      else if (what < 75)
        pass(worker);
      else if (what < 92)
        drop(worker);
      else if (what < 94)
        end_calls(worker);
      else if (what < 96 && deaths)
        cut(worker);
      else if (what == 99 && deaths && draw(10) == 0)
        kill(worker);
      check();
    }
  }
  /// Everybody drops everything; what is under way arrives.
  void settle_all() {
    for (auto& [number, worker] : workers_) end_all_calls(worker);
    for (int round = 0; round < 20; ++round) {
      while (deliver_one()) check();
      for (auto& [number, worker] : workers_)
        while (!worker.dead && !worker.refs.empty()) drop(worker);
    }
    while (deliver_one()) {
    }
  }
  std::string left_over() const {
    std::string text;
    for (const auto& [number, worker] : workers_) {
      if (worker.dead) continue;
      const Ledger& l = *worker.ledger;
      if (l.owned() + l.held() + l.passed() > 0)
        text += "worker " + std::to_string(number) + " has " + std::to_string(l.owned()) +
                " objects, " + std::to_string(l.held()) + " holds, " + std::to_string(l.passed()) +
                " passed; ";
    }
    return text;
  }
  const std::vector<std::string>& failures() const { return failures_; }
  int freed() const { return freed_; }
  int made() const { return made_; }
  int late_reads() const { return late_reads_; }

 private:
  int draw(int below) { return std::uniform_int_distribution<int>(0, below - 1)(random_); }
  Worker& any() { return workers_.at(1 + draw(static_cast<int>(workers_.size()))); }

  void connect(int64_t a, int64_t b) {
    const uint64_t of_a = ++last_link_, of_b = ++last_link_;
    for (const auto& [from, to, link, other] :
         {std::tuple{a, b, of_a, of_b}, std::tuple{b, a, of_b, of_a}}) {
      workers_[from].link_to[to] = link;
      workers_[from].peer_of[link] = to;
      other_end_[link] = other;
      workers_[from].ledger->opened(link, to);
      act(workers_[from]);
    }
  }
  void disconnect(int64_t a, int64_t b) {
    const uint64_t of_a = workers_[a].link_to.at(b), of_b = workers_[b].link_to.at(a);
    std::erase_if(messages_, [&](const Message& message) {
      return message.link_from == of_a || message.link_from == of_b;
    });
    for (const auto& [from, to, link] : {std::tuple{a, b, of_a}, std::tuple{b, a, of_b}}) {
      Worker& worker = workers_[from];
      worker.link_to.erase(to);
      worker.peer_of.erase(link);
      std::erase_if(calls_, [&](const auto& call) { return call.second.link == link; });
      if (worker.dead) continue;
      worker.ledger->lost(link);
      act(worker);
    }
    ++breaks_;
  }
  void cut(Worker& worker) {
    Worker& other = any();
    if (other.number == worker.number || !worker.link_to.contains(other.number)) return;
    disconnect(worker.number, other.number);
    connect(worker.number, other.number);
  }
  void kill(Worker& worker) {
    if (std::count_if(workers_.begin(), workers_.end(),
                      [](const auto& entry) { return !entry.second.dead; }) <= 2)
      return;
    worker.dead = true;
    const auto links = worker.link_to;
    for (const auto& [peer, link] : links) disconnect(worker.number, peer);
    worker.refs.clear();
  }

  void send(Worker& from, uint64_t link, Body body) {
    const auto peer = from.peer_of.find(link);
    if (peer == from.peer_of.end()) return;
    messages_.push_back({from.number, peer->second, link, std::move(body)});
  }
  void make(Worker& worker) {
    Worker& owner = any();
    if (owner.number == worker.number) {
      worker.refs.push_back({worker.ledger->own(), 0});
      ++made_;
      return;
    }
    const auto link = worker.link_to.find(owner.number);
    if (link == worker.link_to.end()) return;
    const auto made = worker.ledger->make(owner.number, link->second);
    act(worker);
    worker.refs.push_back({made.object, made.life});
    if (draw(8) == 0) {  // it never leaves: too large, say
      never_made_.insert(made.object);
      worker.ledger->answered(made.life, false);
      act(worker);
    } else {
      send(worker, link->second, Make{made.object, made.life});
    }
  }
  struct CallMade {
    uint64_t link;
    std::vector<uint64_t> tokens;
  };
  void pass(Worker& worker) {
    Worker& to = any();
    const auto link = worker.link_to.find(to.number);
    if (link == worker.link_to.end() || worker.refs.empty()) return;
    const Ref& ref = worker.refs[static_cast<size_t>(draw(static_cast<int>(worker.refs.size())))];
    const uint64_t call = ++last_call_;
    const bool answer = draw(3) == 0;
    const uint64_t token = worker.ledger->pass(
        ref.object, ref.life, link->second, answer ? std::optional<uint64_t>(call) : std::nullopt);
    if (answer) {
      if (draw(6) == 0) {  // its caller has given it up before
        send(to, other_end_.at(link->second), GiveUp{call});
        return;
      }
    } else {
      calls_[{worker.number, token}] = {link->second, {token}};
      if (draw(10) == 0) {  // it never leaves
        calls_.erase({worker.number, token});
        worker.ledger->take_back({token});
        act(worker);
        return;
      }
    }
    send(worker, link->second, Pass{ref.object, token, call, answer});
  }
  // The caller's deadline passes; the call may still run.
  void end_calls(Worker& worker) {
    for (auto it = calls_.begin(); it != calls_.end(); ++it)
      if (it->first.first == worker.number) {
        const auto [link, tokens] = it->second;
        calls_.erase(it);
        worker.ledger->call_failed(link, tokens, true);
        act(worker);
        return;
      }
  }
  void end_all_calls(Worker& worker) {
    for (;;) {
      const auto before = calls_.size();
      end_calls(worker);
      if (calls_.size() == before) return;
    }
  }
  void drop(Worker& worker) {
    if (worker.refs.empty()) return;
    const size_t at = static_cast<size_t>(draw(static_cast<int>(worker.refs.size())));
    const Ref ref = worker.refs[at];
    worker.refs.erase(worker.refs.begin() + static_cast<std::ptrdiff_t>(at));
    worker.ledger->drop(ref.object, ref.life);
    act(worker);
  }

  void act(Worker& worker) {
    for (const auto& act : worker.ledger->take()) {
      if (const auto* claim = std::get_if<Ledger::Claim>(&act)) {
        const auto link = worker.link_to.find(claim->object.owner);
        if (link != worker.link_to.end() && worker.ledger->claims(claim->life, link->second)) {
          send(worker, link->second, *claim);
        } else {
          worker.ledger->answered(claim->life, false);
          this->act(worker);
        }
      } else if (const auto* release = std::get_if<Ledger::Release>(&act)) {
        send(worker, release->link, *release);
      } else if (const auto* settle = std::get_if<Ledger::Settle>(&act)) {
        send(worker, settle->link, *settle);
      } else if (const auto* withdraw = std::get_if<Ledger::Withdraw>(&act)) {
        send(worker, withdraw->link, *withdraw);
      } else if (std::get_if<Ledger::Free>(&act)) {
        ++freed_;
      }
    }
  }

  // Any of those that are under way.
  bool deliver_one() {
    if (messages_.empty()) return false;
    const size_t at = static_cast<size_t>(draw(static_cast<int>(messages_.size())));
    const Message message = messages_[at];
    messages_.erase(messages_.begin() + static_cast<std::ptrdiff_t>(at));
    Worker& to = workers_.at(message.to);
    Ledger& ledger = *to.ledger;
    const uint64_t link = other_end_.at(message.link_from);
    std::visit(
        [&](const auto& body) {
          using T = std::decay_t<decltype(body)>;
          if constexpr (std::is_same_v<T, Make>) {
            const bool ok = ledger.make_for(body.object, link, body.life);
            made_ += ok;
            if (ok) came_.insert(body.object);
            send(to, link, Made{body.life, ok && draw(10) > 0});  // a constructor may throw
          } else if constexpr (std::is_same_v<T, Made> || std::is_same_v<T, Claimed>) {
            ledger.answered(body.life, body.ok);
          } else if constexpr (std::is_same_v<T, Ledger::Claim>) {
            send(to, link, Claimed{body.life, ledger.claimed(body.object, link, body.life)});
          } else if constexpr (std::is_same_v<T, Ledger::Release>) {
            ledger.released(body.object, link, body.life);
          } else if constexpr (std::is_same_v<T, Ledger::Settle>) {
            ledger.settled(link, body.token);
          } else if constexpr (std::is_same_v<T, Ledger::Withdraw>) {
            send(to, link, Unread{ledger.withdraw(link, body.tokens, body.may_run)});
          } else if constexpr (std::is_same_v<T, Unread>) {
            ledger.take_back(body.tokens);
          } else if constexpr (std::is_same_v<T, Pass>) {
            if (const auto life = ledger.read(body.object, link, body.token))
              to.refs.push_back({body.object, *life});
            else
              ++late_reads_;
            if (!body.answer) send(to, link, PassEnded{body.token, draw(4) == 0});
          } else if constexpr (std::is_same_v<T, PassEnded>) {
            const auto call = calls_.find({to.number, body.token});
            if (call == calls_.end()) return;
            const auto tokens = call->second.tokens;
            calls_.erase(call);
            if (body.failed) ledger.call_failed(link, tokens, false);
          } else if constexpr (std::is_same_v<T, GiveUp>) {
            ledger.given_up(link, body.call);
          }
        },
        message.body);
    act(to);
    return true;
  }

  // Without a link that broke, no reference has lost its object.
  void check() {
    if (breaks_ > 0) return;
    for (const auto& [number, worker] : workers_)
      for (const Ref& ref : worker.refs) {
        if (never_made_.contains(ref.object)) continue;  // each use of it fails
        const Worker& owner = workers_.at(ref.object.owner);
        const bool announced = ref.object.maker != ref.object.owner;  // it may be still to come
        if (!owner.ledger->owns(ref.object) && !(announced && !came_.contains(ref.object)))
          failures_.push_back("worker " + std::to_string(number) + " refers to object " +
                              std::to_string(ref.object.maker) + "." +
                              std::to_string(ref.object.number) + " of worker " +
                              std::to_string(ref.object.owner) + ", which was freed");
      }
  }

  std::mt19937_64 random_;
  std::map<int64_t, Worker> workers_;
  std::vector<Message> messages_;
  std::map<uint64_t, uint64_t> other_end_;
  std::map<std::pair<int64_t, uint64_t>, CallMade> calls_;
  std::set<ObjectId> came_, never_made_;
  std::vector<std::string> failures_;
  uint64_t last_link_ = 0, last_call_ = 0;
  int freed_ = 0, made_ = 0, late_reads_ = 0, breaks_ = 0;
};

}  // namespace trireme::rpc_ledger_test
