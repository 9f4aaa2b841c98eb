// SPDX-License-Identifier: Apache-2.0
#include "trireme/launch/nodes/succession_run.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "trireme/base/check.h"
#include "trireme/base/log.h"
#include "trireme/launch/nodes/elastic_keys.h"

namespace trireme::launch {
namespace {

constexpr Duration kAskEvery = std::chrono::milliseconds(100);
constexpr int64_t kNewestAsked = 63;  // of the generations of a store, whether they have begun

class SuccessionRun {
 public:
  SuccessionRun(const SuccessionStart& start, Store& table, Neighbours& neighbours, bool& yielded)
      : start_(start), table_(table), neighbours_(neighbours), yielded_(yielded) {
    view_.us = start.us;
    view_.last = start.last.generation;
    if (!start.last_has_begun) view_.before = start.last.before;
    add(view_.last);
    for (const Generation& before : view_.before) add(before);
    // Its workers are gone.
    for (Standing own = standing_in(table_); own.is == Standing::in; own = standing_in(table_)) {
      Standing free = own;
      free.is = Standing::free;
      free.store.clear();
      change_own(own, free);
    }
  }

  SuccessionEnd run(const std::function<bool()>& asked_to_stop) {
    const Clock::time_point since = Clock::now();
    while (!asked_to_stop()) {
      view_.seen = neighbours_.look(others_);
      view_.own = standing_in(table_);
      view_.waited = Clock::now() - since;
      view_.yielded = yielded_;
      view_.not_begun.clear();
      SuccessionStep step = next_step(view_, start_.patience);
      while (step.kind == SuccessionStep::rejoin && waits_for_others(step)) {
        view_.not_begun.emplace(step.generation, step.keeper);
        step = next_step(view_, start_.patience);
      }
      if (step.kind == SuccessionStep::decided) {
        SuccessionEnd end{SuccessionEnd::keeps};
        end.followers = step.followers;
        return end;
      }
      if (step.kind == SuccessionStep::give_up) {
        SuccessionEnd end{SuccessionEnd::gave_up};
        end.sentence = step.sentence;
        return end;
      }
      if (auto end = act(step)) return std::move(*end);
      if (step.kind != SuccessionStep::ask) std::this_thread::sleep_for(kAskEvery);
    }
    return {};
  }

 private:
  void add(const Generation& generation) {
    for (const Member& m : generation.members)
      if (m.token != start_.us && std::none_of(others_.begin(), others_.end(),
                                               [&](const Member& o) { return o.token == m.token; }))
        others_.push_back(m);
  }
  const Member& member(const std::string& token) const {
    return *std::find_if(others_.begin(), others_.end(),
                         [&](const Member& m) { return m.token == token; });
  }
  bool change_own(const Standing& before, const Standing& after) {
    const std::string text = to_text(after);
    return table_.compare_set(elastic::kStanding, to_text(before), text) == text;
  }

  /// No generation newer than ours has begun in the store of that one. A store that does not answer
  /// says nothing: its launchers will have lost it, too.
  bool waits_for_others(const SuccessionStep& step) const try {
    const auto store = neighbours_.enter(step.who);
    if (!store) return false;
    std::vector<std::string> begun;
    const int64_t first = std::max(view_.last.number + 1, step.generation - kNewestAsked);
    for (int64_t n = first; n <= step.generation; ++n) begun.push_back(elastic::begun(n));
    return store->missing(begun).size() == begun.size();
  } catch (const Error& error) {
    log_debug("the store at {} does not say what has begun there: {}", step.who, error.what());
    return false;
  }

  std::optional<SuccessionEnd> act(const SuccessionStep& step) {
    switch (step.kind) {
      case SuccessionStep::ask:
        ask(step.asked);
        break;
      case SuccessionStep::yield: {
        yielded_ = true;
        Standing own = view_.own;
        own.to = step.who;
        change_own(view_.own, own);
        break;
      }
      case SuccessionStep::follow:
        return enter(SuccessionEnd::follows, member(step.who).address, step.who);
      case SuccessionStep::rejoin:
        return enter(SuccessionEnd::rejoins, step.who, "");
      default:
        break;
    }
    return std::nullopt;
  }

  void ask(const std::vector<std::string>& asked) {
    const auto promised = [&](Standing s) {
      s.is = Standing::promised;
      s.to = start_.us;
      s.store.clear();
      return s;
    };
    if (std::count(asked.begin(), asked.end(), start_.us) &&
        !change_own(view_.own, promised(view_.own)))
      return;
    for (const std::string& token : asked) {
      if (token == start_.us) continue;
      const Standing& seen = view_.seen.at(token).standing;
      neighbours_.set_standing(member(token), seen, promised(seen));
    }
  }

  std::optional<SuccessionEnd> enter(SuccessionEnd::Kind kind, const std::string& address,
                                     const std::string& keeper) {
    try {
      SuccessionEnd end{kind};
      end.store = neighbours_.enter(address);
      end.address = address;
      end.keeper = keeper;
      if (end.store) return end;
    } catch (const Error& error) {
      log_debug("the store at {} does not take this node: {}", address, error.what());
    }
    return std::nullopt;
  }

  const SuccessionStart& start_;
  Store& table_;
  Neighbours& neighbours_;
  bool& yielded_;
  SuccessionView view_;
  std::vector<Member> others_;
};

}  // namespace

SuccessionEnd succeed(const SuccessionStart& start, Store& table, Neighbours& neighbours,
                      bool& yielded, const std::function<bool()>& asked_to_stop) {
  return SuccessionRun(start, table, neighbours, yielded).run(asked_to_stop);
}

SuccessionEnd find_successor(const SuccessionStart& start, Neighbours& neighbours,
                             Deadline deadline, const std::function<bool()>& asked_to_stop) {
  const Generation& last = start.last.generation;
  while (!asked_to_stop()) {
    for (const auto& [token, seen] : neighbours.look(last.members)) {
      if (seen.sight != Sight::answers || seen.standing.is != Standing::in ||
          seen.standing.generation <= last.number)
        continue;
      SuccessionEnd end{SuccessionEnd::rejoins};
      end.store = neighbours.enter(seen.standing.store);
      end.address = seen.standing.store;
      if (end.store) return end;
    }
    if (deadline.expired()) {
      SuccessionEnd end{SuccessionEnd::gave_up};
      end.sentence = "no node of the job goes on, as far as this one can see";
      return end;
    }
    std::this_thread::sleep_for(kAskEvery);
  }
  return {};
}

}  // namespace trireme::launch
