// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <compare>
#include <cstdint>
#include <string>

#include "trireme/base/export.h"

// What one rank of a pipeline does next. A schedule is a list of these for each rank.
namespace trireme::pipeline {

enum class ActionKind : uint8_t {
  forward,          // F
  input_gradient,   // I: the half of a backward that the stage before waits for
  weight_gradient,  // W: the other half, at any later time
  backward,         // B: both halves at once
  send_forward,     // of what a forward computed, to the rank of the next stage
  recv_forward,     // of a forward's input, from the rank of the stage before
  send_backward,    // of an input gradient, to the rank of the stage before
  recv_backward,    // of an output gradient, from the rank of the next stage
  unshard,          // ZeRO: gather the parameters of a stage
  reshard,          // ZeRO: drop what was gathered
  reduce_gradients  // add a stage's gradients over its replicas: of a micro-batch, or of the step
};

/// One action. `stage` counts over all ranks, from 0; the stage of a message is the stage of the
/// rank that has the action: 0SEND_F1 meets 1RECV_F1.
struct Action {
  ActionKind kind = ActionKind::forward;
  int stage = 0;
  int micro_batch = kNone;     // kNone for what concerns a whole stage: unshard, reshard
  bool overlaps_next = false;  // may run at the same time as the next action of the list, which is
                               // of another direction; who runs both in turn gets the same result
  static constexpr int kNone = -1;
  auto operator<=>(const Action&) const = default;
};

constexpr bool is_compute(ActionKind k) { return k <= ActionKind::backward; }
constexpr bool is_send(ActionKind k) {
  return k == ActionKind::send_forward || k == ActionKind::send_backward;
}
constexpr bool is_receive(ActionKind k) {
  return k == ActionKind::recv_forward || k == ActionKind::recv_backward;
}
constexpr bool is_message(ActionKind k) { return is_send(k) || is_receive(k); }
constexpr bool is_of_unit(ActionKind k) { return k >= ActionKind::unshard; }
constexpr bool is_gather_or_drop(ActionKind k) {
  return k == ActionKind::unshard || k == ActionKind::reshard;
}
/// I and B: what the stage before waits for.
constexpr bool gives_input_gradient(ActionKind k) {
  return k == ActionKind::input_gradient || k == ActionKind::backward;
}
/// W and B: after the last of these a stage's gradients are complete.
constexpr bool gives_weight_gradient(ActionKind k) {
  return k == ActionKind::weight_gradient || k == ActionKind::backward;
}

/// "F", "SEND_F", "REDUCE_GRAD": the words of torch.distributed.pipelining.
TRIREME_API const char* word_of(ActionKind kind);

/// "2F0", "1UNSHARD". An overlapped pair is two actions here.
TRIREME_API std::string text_of(const Action& action);

}  // namespace trireme::pipeline
