// SPDX-License-Identifier: Apache-2.0
#include "trireme/rpc/autograd/plan/backward_plan.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <queue>
#include <utility>

#include "trireme/base/check.h"

namespace trireme::rpc::backward_plan {
namespace {

using Numbers = std::vector<int>;

class Groups {
 public:
  explicit Groups(size_t n) : parent_(n) { std::iota(parent_.begin(), parent_.end(), 0); }
  int of(int i) {
    while (parent_[static_cast<size_t>(i)] != i) {
      int& parent = parent_[static_cast<size_t>(i)];
      parent = parent_[static_cast<size_t>(parent)];
      i = parent;
    }
    return i;
  }
  void join(int a, int b) { parent_[static_cast<size_t>(of(a))] = of(b); }

 private:
  Numbers parent_;
};

/// The strongly connected parts of a graph, numbered so that edges go from lower to higher ones.
class Parts {
 public:
  explicit Parts(const std::vector<Numbers>& next)
      : next_(next), number_(next.size(), -1), low_(next.size()), part_(next.size(), -1) {
    for (size_t i = 0; i < next.size(); ++i)
      if (number_[i] < 0) visit(static_cast<int>(i));
    for (int& part : part_) part = found_ - 1 - part;  // Tarjan finds the last one first
  }
  int of(int i) const { return part_[static_cast<size_t>(i)]; }
  int size_of_part_of(int i) const {
    return static_cast<int>(std::count(part_.begin(), part_.end(), of(i)));
  }

 private:
  // Without recursion: a chain of calls may be long.
  void visit(int from) {
    std::vector<std::pair<int, size_t>> path{{from, 0}};
    begin(from);
    while (!path.empty()) {
      auto& [at, edge] = path.back();
      const Numbers& next = next_[static_cast<size_t>(at)];
      if (edge < next.size()) {
        const int to = next[edge++];
        if (number_[static_cast<size_t>(to)] < 0) {
          begin(to);
          path.emplace_back(to, 0);
        } else if (part_[static_cast<size_t>(to)] < 0) {
          lower(at, number_[static_cast<size_t>(to)]);
        }
        continue;
      }
      const int done = at;
      path.pop_back();
      if (!path.empty()) lower(path.back().first, low_[static_cast<size_t>(done)]);
      if (low_[static_cast<size_t>(done)] != number_[static_cast<size_t>(done)]) continue;
      for (int member = -1; member != done;) {
        member = open_.back();
        open_.pop_back();
        part_[static_cast<size_t>(member)] = found_;
      }
      ++found_;
    }
  }
  void begin(int i) {
    number_[static_cast<size_t>(i)] = low_[static_cast<size_t>(i)] = count_++;
    open_.push_back(i);
  }
  void lower(int i, int to) {
    int& low = low_[static_cast<size_t>(i)];
    low = std::min(low, to);
  }

  const std::vector<Numbers>& next_;
  Numbers number_, low_, part_, open_;
  int count_ = 0, found_ = 0;
};

/// The entry that gets each message.
Numbers receivers(const std::vector<Entry>& entries) {
  int messages = 0;
  for (const Entry& entry : entries) {
    messages = std::max(messages, entry.message + 1);
    for (const int exit : entry.exits) messages = std::max(messages, exit + 1);
  }
  Numbers to(static_cast<size_t>(messages), -1);
  for (size_t i = 0; i < entries.size(); ++i) {
    if (entries[i].message == kLosses) continue;
    int& receiver = to[static_cast<size_t>(entries[i].message)];
    check<Corrupt>(receiver < 0, "two workers get one gradient of a distributed backward");
    receiver = static_cast<int>(i);
  }
  check<Corrupt>(std::find(to.begin(), to.end(), -1) == to.end(),
                 "no worker gets a gradient of a distributed backward");
  return to;
}

/// An order of messages in which each comes after those it depends on: the place of each.
Numbers places(const std::vector<Entry>& entries, const Numbers& receiver) {
  Numbers before(receiver.size(), 0);
  for (const Entry& entry : entries)
    if (entry.message != kLosses)
      for (const int exit : entry.exits) ++before[static_cast<size_t>(exit)];
  std::queue<int> free;
  for (size_t i = 0; i < before.size(); ++i)
    if (before[i] == 0) free.push(static_cast<int>(i));
  Numbers place(receiver.size(), -1);
  int count = 0;
  for (; !free.empty(); free.pop()) {
    const auto message = static_cast<size_t>(free.front());
    place[message] = count++;
    for (const int exit : entries[static_cast<size_t>(receiver[message])].exits)
      if (--before[static_cast<size_t>(exit)] == 0) free.push(exit);
  }
  check<Corrupt>(count == static_cast<int>(receiver.size()),
                 "a gradient of a distributed backward depends on itself");
  return place;
}

/// The pass of each entry, numbered by the first of their entries.
Numbers passes_of(const std::vector<Entry>& entries, bool one_pass) {
  Groups groups(entries.size());
  std::map<int, int> by_worker;
  std::map<std::pair<int, int>, int> by_exit;
  for (size_t i = 0; i < entries.size(); ++i) {
    const Entry& entry = entries[i];
    const auto join = [&](auto& seen, auto key) {
      const auto [place, first] = seen.emplace(key, static_cast<int>(i));
      if (!first) groups.join(static_cast<int>(i), place->second);
    };
    if (one_pass) join(by_worker, entry.worker);
    for (const int exit : entry.exits) join(by_exit, std::pair(entry.worker, exit));
    for (const int other : entry.touches) groups.join(static_cast<int>(i), other);
  }
  std::map<int, int> numbers;
  Numbers pass(entries.size());
  for (size_t i = 0; i < entries.size(); ++i)
    pass[i] = numbers.emplace(groups.of(static_cast<int>(i)), static_cast<int>(numbers.size()))
                  .first->second;
  return pass;
}

}  // namespace

std::vector<Pass> make_passes(const std::vector<Entry>& entries, bool one_pass) {
  for (const Entry& entry : entries)
    for (const int other : entry.touches)
      check<Corrupt>(other >= 0 && static_cast<size_t>(other) < entries.size() &&
                         entries[static_cast<size_t>(other)].worker == entry.worker,
                     "an entry of a distributed backward touches one that there is not");
  const Numbers receiver = receivers(entries);
  const Numbers place = places(entries, receiver);
  const Numbers pass_of = passes_of(entries, one_pass);

  const int count = entries.empty() ? 0 : *std::max_element(pass_of.begin(), pass_of.end()) + 1;
  std::vector<Pass> passes(static_cast<size_t>(count));
  std::vector<Numbers> next(passes.size());
  Numbers sender(receiver.size(), -1);
  Numbers leading(receiver.size(), 0);  // entries behind which it leaves
  for (size_t i = 0; i < entries.size(); ++i) {
    Pass& pass = passes[static_cast<size_t>(pass_of[i])];
    pass.worker = entries[i].worker;
    pass.entries.push_back(entries[i].message);
    for (const int exit : entries[i].exits) {
      ++leading[static_cast<size_t>(exit)];
      if (std::exchange(sender[static_cast<size_t>(exit)], pass_of[i]) >= 0) continue;
      pass.exits.push_back(exit);
      next[static_cast<size_t>(pass_of[i])].push_back(
          pass_of[static_cast<size_t>(receiver[static_cast<size_t>(exit)])]);
    }
  }

  // The order of all messages: by the part of the pass that sends them, then by what they depend
  // on.
  const Parts parts(next);
  const auto rank = [&](int message) {
    if (message == kLosses) return std::pair(-1, -1);
    const auto i = static_cast<size_t>(message);
    return std::pair(sender[i] < 0 ? -1 : parts.of(sender[i]), place[i]);
  };
  const auto earlier = [&](int a, int b) { return rank(a) < rank(b); };
  for (size_t i = 0; i < passes.size(); ++i) {
    Pass& pass = passes[i];
    const int number = static_cast<int>(i);
    std::sort(pass.entries.begin(), pass.entries.end(), earlier);
    std::sort(pass.exits.begin(), pass.exits.end(), earlier);
    const bool in_a_circle = parts.size_of_part_of(number) > 1 ||
                             std::find(next[i].begin(), next[i].end(), number) != next[i].end();
    // Where every exit needs every entry, nothing could be done before the last one.
    const bool can_begin = std::any_of(pass.exits.begin(), pass.exits.end(), [&](int exit) {
      return leading[static_cast<size_t>(exit)] < static_cast<int>(pass.entries.size());
    });
    pass.waits = in_a_circle && can_begin;
    if (!pass.waits) continue;
    for (const int entry : pass.entries) {
      Numbers& after = pass.after.emplace_back();  // with itself, where it goes to this pass
      for (const int exit : pass.exits)
        if (entry != kLosses && !earlier(entry, exit)) after.push_back(exit);
    }
  }
  return passes;
}

}  // namespace trireme::rpc::backward_plan
