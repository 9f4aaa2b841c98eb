// SPDX-License-Identifier: Apache-2.0
#include <fmt/core.h>

#include "trireme/pipeline/schedule/check/parts.h"

// What each list says by itself: what it computes is there before it is used.
namespace trireme::pipeline::checking {

using K = ActionKind;

Result check_order(const Schedule& schedule, const Index& index) {
  for (int stage = 0; stage < schedule.stages(); ++stage)
    for (int k = 0; k < schedule.micro_batches; ++k) {
      const Place forward = index.at(K::forward, stage, k);
      const Place backward = index.input_gradient(stage, k);
      if (backward.position < forward.position)
        return finding(schedule, Fault::backward_before_forward, backward,
                       fmt::format("{} comes before its forward, action {}",
                                   where(schedule, backward), forward.position + 1));
      const Place weight = index.at(K::weight_gradient, stage, k);
      if (weight.there() && weight.position < backward.position)
        return finding(schedule, Fault::weight_before_input, weight,
                       fmt::format("{} comes before its input gradient, action {}",
                                   where(schedule, weight), backward.position + 1));
      if (stage + 1 == schedule.stages() || !schedule.same_rank(stage, stage + 1)) continue;
      const Place next = index.at(K::forward, stage + 1, k);
      const Place above = index.input_gradient(stage + 1, k);
      const bool forwards = next.position < forward.position;
      if (!forwards && backward.position > above.position) continue;
      const Place at = forwards ? next : backward, from = forwards ? forward : above;
      return finding(schedule, Fault::handed_over_late, at,
                     fmt::format("{} needs what the same rank computes later, as action {}",
                                 where(schedule, at), from.position + 1));
    }
  return {};
}

namespace {

// One message that the stages need.
struct Edge {
  K send, receive;
  int from, to, micro_batch;
  Place producer, consumer;
};

Result check_edge(const Schedule& schedule, const Index& index, const Edge& e) {
  const Place sent = index.at(e.send, e.from, e.micro_batch);
  const Place received = index.at(e.receive, e.to, e.micro_batch);
  const auto text = [&](K kind, int stage) { return text_of({kind, stage, e.micro_batch}); };
  if (!received.there())
    return finding(schedule, Fault::missing_receive, e.consumer,
                   fmt::format("{} has no {} before it", where(schedule, e.consumer),
                               text(e.receive, e.to)));
  if (!sent.there())
    return finding(schedule, Fault::missing_send, received,
                   fmt::format("{} waits for {}, which rank {} never sends",
                               where(schedule, received), text(e.send, e.from), e.producer.rank));
  if (received.position > e.consumer.position)
    return finding(schedule, Fault::received_after_use, received,
                   fmt::format("{} comes after what uses it, action {}", where(schedule, received),
                               e.consumer.position + 1));
  if (sent.position < e.producer.position)
    return finding(schedule, Fault::sent_before_computed, sent,
                   fmt::format("{} comes before what it sends is computed, by action {}",
                               where(schedule, sent), e.producer.position + 1));
  return {};
}

}  // namespace

Result check_messages(const Schedule& schedule, const Index& index) {
  // What is there has a use.
  for (int rank = 0; rank < schedule.ranks(); ++rank) {
    const auto& list = schedule.actions[static_cast<size_t>(rank)];
    for (size_t i = 0; i < list.size(); ++i) {
      const Action& a = list[i];
      if (!is_message(a.kind)) continue;
      const bool up = a.kind == K::send_forward || a.kind == K::recv_backward;
      const int other = a.stage + (up ? 1 : -1);
      const bool outside = other < 0 || other >= schedule.stages();
      if (!outside && !schedule.same_rank(other, a.stage)) continue;
      const Place here{rank, static_cast<int>(i)};
      return finding(schedule, Fault::needless_message, here,
                     fmt::format("{} has no other rank to exchange with: {}", where(schedule, here),
                                 outside ? "there is no such stage"
                                         : "both stages are on this rank, which hands over by "
                                           "itself"));
    }
  }
  for (int stage = 0; stage + 1 < schedule.stages(); ++stage) {
    if (schedule.same_rank(stage, stage + 1)) continue;
    for (int k = 0; k < schedule.micro_batches; ++k) {
      const Edge forward{K::send_forward,
                         K::recv_forward,
                         stage,
                         stage + 1,
                         k,
                         index.at(K::forward, stage, k),
                         index.at(K::forward, stage + 1, k)};
      if (Result r = check_edge(schedule, index, forward)) return r;
      const Edge backward{K::send_backward,
                          K::recv_backward,
                          stage + 1,
                          stage,
                          k,
                          index.input_gradient(stage + 1, k),
                          index.input_gradient(stage, k)};
      if (Result r = check_edge(schedule, index, backward)) return r;
    }
  }
  return {};
}

}  // namespace trireme::pipeline::checking
