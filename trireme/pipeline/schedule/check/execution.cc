// SPDX-License-Identifier: Apache-2.0
#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <tuple>

#include "trireme/pipeline/schedule/check/parts.h"

// Carries a table out without computing: each rank goes as far as it can. What is left when nobody
// can move is a deadlock, and since no action of a rank can be undone by another's, it is one at
// any speed of the ranks. On the way, vector clocks say which messages may be under way together.
namespace trireme::pipeline::checking {
namespace {

using K = ActionKind;

Place counterpart(const Index& index, const Action& a) {
  switch (a.kind) {
    case K::send_forward:
      return index.at(K::recv_forward, a.stage + 1, a.micro_batch);
    case K::recv_forward:
      return index.at(K::send_forward, a.stage - 1, a.micro_batch);
    case K::send_backward:
      return index.at(K::recv_backward, a.stage - 1, a.micro_batch);
    default:
      return index.at(K::send_backward, a.stage + 1, a.micro_batch);
  }
}

class Execution {
 public:
  Execution(const Schedule& schedule, const Index& index, const CheckOptions& options)
      : schedule_(schedule),
        index_(index),
        options_(options),
        at_(schedule.actions.size(), 0),
        clocks_(options.tags > 0 ? schedule.actions.size() : 0,
                std::vector<int>(schedule.actions.size(), 0)) {}

  Result run() {
    for (bool moved = true; moved;) {
      moved = false;
      for (int rank = 0; rank < schedule_.ranks(); ++rank)
        while (const Action* a = next(rank)) {
          if (is_message(a->kind) && !ready(*a)) break;
          if (Result r = step(rank, *a)) return r;
          moved = true;
        }
    }
    for (int rank = 0; rank < schedule_.ranks(); ++rank)
      if (next(rank)) return deadlock(rank);
    return {};
  }

 private:
  const Action* next(int rank) const {
    const auto r = static_cast<size_t>(rank);
    const auto& list = schedule_.actions[r];
    const auto at = static_cast<size_t>(at_[r]);
    return at < list.size() ? &list[at] : nullptr;
  }

  bool ready(const Action& a) const {
    const Place other = counterpart(index_, a);
    const int reached = at_[static_cast<size_t>(other.rank)];
    if (is_receive(a.kind)) return reached > other.position;
    return !options_.rendezvous || reached >= other.position;
  }

  Result step(int rank, const Action& a) {
    const auto r = static_cast<size_t>(rank);
    if (options_.tags == 0) {
      ++at_[r];
      return {};
    }
    if (is_send(a.kind)) {
      if (Result clash = send(rank, a)) return clash;
    }
    std::vector<int>& clock = clocks_[r];
    clock[r] = ++at_[r];
    if (is_receive(a.kind)) {
      const auto sent = under_way_.find({a.kind, a.stage, a.micro_batch});
      for (size_t i = 0; i < clock.size(); ++i) clock[i] = std::max(clock[i], sent->second[i]);
      under_way_.erase(sent);
    }
    return {};
  }

  // An earlier message with the same tag may still be under way unless the sender has heard,
  // directly or through others, from its receiver since.
  Result send(int rank, const Action& a) {
    const Place received = counterpart(index_, a);
    const Action receive =
        schedule_
            .actions[static_cast<size_t>(received.rank)][static_cast<size_t>(received.position)];
    const auto& clock = clocks_[static_cast<size_t>(rank)];
    const Place here{rank, at_[static_cast<size_t>(rank)]};
    const long tag = tag_of(schedule_, receive) % options_.tags;
    const auto [last, first] = tags_.try_emplace({rank, received.rank, a.kind, tag}, here);
    if (!first) {
      const Action& before =
          schedule_.actions[static_cast<size_t>(rank)][static_cast<size_t>(last->second.position)];
      const Place taken = counterpart(index_, before);
      if (clock[static_cast<size_t>(received.rank)] <= taken.position)
        return finding(schedule_, Fault::tag_clash, here,
                       fmt::format("{} has tag {} while {} may still be on its way to rank {} with "
                                   "that tag: use more than {} tags",
                                   where(schedule_, here), tag, text_of(before), received.rank,
                                   options_.tags));
      last->second = here;
    }
    std::vector<int>& sent = under_way_[{receive.kind, receive.stage, receive.micro_batch}];
    sent = clock;
    sent[static_cast<size_t>(rank)] = here.position + 1;
    return {};
  }

  // Follows who waits for whom until a rank comes up again.
  Finding deadlock(int rank) const {
    std::map<int, size_t> seen;
    std::vector<Place> path;
    while (!seen.count(rank)) {
      seen[rank] = path.size();
      path.push_back({rank, at_[static_cast<size_t>(rank)]});
      rank = counterpart(index_, *next(rank)).rank;
    }
    const std::vector<Place> circle(path.begin() + static_cast<ptrdiff_t>(seen[rank]), path.end());
    std::string text;
    for (const Place& p : circle) {
      const Place other = counterpart(index_, *next(p.rank));
      text += fmt::format("{}{} waits for {}", text.empty() ? "" : ", ", where(schedule_, p),
                          where(schedule_, other));
    }
    const Fault fault = options_.rendezvous ? Fault::rendezvous_deadlock : Fault::deadlock;
    Finding result = finding(schedule_, fault, circle.front(), text + ": none of them goes on");
    result.drawing = draw_lists(schedule_, circle);
    return result;
  }

  const Schedule& schedule_;
  const Index& index_;
  const CheckOptions& options_;
  std::vector<int> at_;                   // how many actions each rank has done
  std::vector<std::vector<int>> clocks_;  // what each rank knows of the others' at_
  std::map<std::tuple<K, int, int>, std::vector<int>> under_way_;  // by receive; sender's clock
  std::map<std::tuple<int, int, K, long>, Place> tags_;            // the last send of each tag
};

}  // namespace

Result check_execution(const Schedule& schedule, const Index& index, const CheckOptions& options) {
  CheckOptions asynchronous = options;
  asynchronous.rendezvous = false;
  if (Result r = Execution(schedule, index, asynchronous).run()) return r;
  if (!options.rendezvous) return {};
  return Execution(schedule, index, options).run();
}

}  // namespace trireme::pipeline::checking
