// SPDX-License-Identifier: Apache-2.0
#include "trireme/pipeline/schedule/messages.h"

#include <algorithm>
#include <limits>
#include <map>
#include <tuple>

#include "trireme/base/check.h"

namespace trireme::pipeline {
namespace {

using List = std::vector<Action>;

// A message is named by its direction and by where it comes from.
struct Message {
  bool forward;
  int source, target, micro_batch;
  auto operator<=>(const Message&) const = default;
  Action send() const {
    return {forward ? ActionKind::send_forward : ActionKind::send_backward, source, micro_batch};
  }
  Action receive() const {
    return {forward ? ActionKind::recv_forward : ActionKind::recv_backward, target, micro_batch};
  }
};

// An action, or an overlapped pair: [begin, end) of its list.
struct Group {
  size_t begin, end;
  std::vector<Message> needs, gives;  // between ranks
  std::vector<Message> needs_here;    // handed over within the rank
  bool computes = false;
};

class Placer {
 public:
  explicit Placer(const Schedule& schedule) : in_(schedule) {
    check<UsageError>(!in_.has_messages(), "the table has sends and receives already: give one of "
                                           "what is computed, or check it as it is");
    for (int stage = 0; stage < in_.stages(); ++stage)
      check<UsageError>(in_.rank_of_stage[static_cast<size_t>(stage)] >= 0,
                        "no rank computes stage {}: give every stage from 0 to {} a row", stage,
                        in_.stages() - 1);
    for (const List& list : in_.actions) groups_.push_back(groups_of(list));
  }

  Schedule place(Receives receives) {
    if (receives != Receives::late) number();
    Schedule out = in_;
    for (int rank = 0; rank < in_.ranks(); ++rank)
      out.actions[static_cast<size_t>(rank)] =
          receives == Receives::when_sent ? list_when_sent(rank) : list_at_need(rank, receives);
    return out;
  }

 private:
  std::vector<Group> groups_of(const List& list) const {
    std::vector<Group> groups;
    for (size_t at = 0; at < list.size();) {
      Group group{at, at + 1, {}, {}, {}};
      while (group.end < list.size() && list[group.end - 1].overlaps_next) ++group.end;
      for (size_t k = group.begin; k < group.end; ++k) add(list[k], group);
      at = group.end;
      groups.push_back(std::move(group));
    }
    return groups;
  }

  void add(const Action& a, Group& group) const {
    if (!is_compute(a.kind)) return;
    group.computes = true;
    const bool forward = a.kind == ActionKind::forward;
    if (!forward && !gives_input_gradient(a.kind)) return;
    if (const int from = in_.source_of(a); from >= 0)
      (in_.same_rank(from, a.stage) ? group.needs_here : group.needs)
          .push_back({forward, from, a.stage, a.micro_batch});
    const int to = a.stage + (forward ? 1 : -1);
    if (to >= 0 && to < in_.stages() && !in_.same_rank(to, a.stage))
      group.gives.push_back({forward, a.stage, to, a.micro_batch});
  }

  // Carries the table out in rounds of one group a rank, and numbers the groups in that order. A
  // list of receives that agrees with one such order cannot deadlock.
  void number() {
    std::map<Message, bool> handed;  // within a rank
    order_.resize(groups_.size());
    size_t left = 0;
    for (const auto& list : groups_) left += list.size();
    long now = 0;
    while (left > 0) {
      bool moved = false;
      for (size_t rank = 0; rank < groups_.size(); ++rank) {
        if (order_[rank].size() == groups_[rank].size()) continue;
        const Group& group = groups_[rank][order_[rank].size()];
        if (!std::all_of(group.needs.begin(), group.needs.end(),
                         [&](const Message& m) { return sent_.count(m) > 0; }))
          continue;
        for (const Message& m : group.gives) sent_.emplace(m, now);
        order_[rank].push_back(now++);
        --left, moved = true;
      }
      check<UsageError>(moved, "the actions of '{}' wait for each other in a circle, so that no "
                               "order of messages helps: 'trireme plan schedule --table' shows it",
                        in_.name);
    }
  }

  List list_at_need(int rank, Receives receives) const {
    const auto r = static_cast<size_t>(rank);
    const auto& groups = groups_[r];
    // Receives before each group; those of a group move to the one before that computes.
    std::vector<std::vector<Message>> before(groups.size());
    size_t last = groups.size();  // the last group that computes; groups.size(): none yet
    for (size_t g = 0; g < groups.size(); ++g) {
      for (const Message& m : groups[g].needs) {
        const bool early = receives == Receives::one_ahead && last < groups.size() &&
                           sent_.at(m) < order_[r][last];
        before[early ? last : g].push_back(m);
      }
      if (groups[g].computes) last = g;
    }
    List out;
    for (size_t g = 0; g < groups.size(); ++g) {
      for (const Message& m : before[g]) out.push_back(m.receive());
      append(rank, groups[g], out);
    }
    return out;
  }

  List list_when_sent(int rank) const {
    const auto r = static_cast<size_t>(rank);
    std::vector<std::tuple<long, Message>> arriving;
    for (const auto& [m, when] : sent_)
      if (in_.rank_of_stage[static_cast<size_t>(m.target)] == rank)
        arriving.emplace_back(when, m);
    // Both messages of a pair go at once: in the order in which their sender lists them.
    std::stable_sort(arriving.begin(), arriving.end(), [](const auto& a, const auto& b) {
      return std::tuple(std::get<0>(a), !std::get<1>(a).forward) <
             std::tuple(std::get<0>(b), !std::get<1>(b).forward);
    });
    List out;
    size_t next = 0;
    for (size_t g = 0; g < groups_[r].size(); ++g) {
      for (; next < arriving.size() && std::get<0>(arriving[next]) < order_[r][g]; ++next)
        out.push_back(std::get<1>(arriving[next]).receive());
      append(rank, groups_[r][g], out);
    }
    for (; next < arriving.size(); ++next) out.push_back(std::get<1>(arriving[next]).receive());
    return out;
  }

  void append(int rank, const Group& group, List& out) const {
    const List& list = in_.actions[static_cast<size_t>(rank)];
    out.insert(out.end(), list.begin() + static_cast<ptrdiff_t>(group.begin),
               list.begin() + static_cast<ptrdiff_t>(group.end));
    std::vector<Message> gives = group.gives;
    std::stable_sort(gives.begin(), gives.end(),
                     [](const Message& a, const Message& b) { return a.forward > b.forward; });
    for (const Message& m : gives) out.push_back(m.send());
  }

  const Schedule& in_;
  std::vector<std::vector<Group>> groups_;  // of each rank
  std::map<Message, long> sent_;            // when, in number()'s order
  std::vector<std::vector<long>> order_;    // of each rank's groups
};

}  // namespace

Schedule place_messages(const Schedule& schedule, Receives receives) {
  return Placer(schedule).place(receives);
}

}  // namespace trireme::pipeline
