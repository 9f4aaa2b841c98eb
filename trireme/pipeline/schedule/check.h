// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>

#include "trireme/base/export.h"
#include "trireme/pipeline/schedule/schedule.h"

namespace trireme::pipeline {

/// Why a table is refused; name_of() gives the word.
enum class Fault : uint8_t {
  empty_table,
  stage_without_rank,
  stage_on_two_ranks,
  repeated_action,  // the same action twice
  two_backwards,    // B beside I or W of the same stage and micro-batch
  dependent_pair,   // an overlapped pair of which one waits for the other
  missing_forward,
  missing_backward,  // neither B nor I
  missing_weight_gradient,
  backward_before_forward,
  weight_before_input,  // W before I
  handed_over_late,     // both stages are on this rank, and the first computes later
  needless_message,     // between stages of one rank, or beyond the first or last stage
  missing_receive,
  missing_send,
  received_after_use,
  sent_before_computed,
  deadlock,
  rendezvous_deadlock,  // only where a send returns when the other rank receives
  tag_clash,
  too_many_activations,
  too_many_weight_gradients,
  unit_not_whole,  // computes with parameters that are not gathered
  unit_gathered_twice,
  unit_not_dropped,   // or dropped without having been gathered
  reduced_too_early,  // before the stage's last weight gradient
  reduced_not_once
};

TRIREME_API const char* name_of(Fault fault);

struct CheckOptions {
  bool rendezvous = false;   // a send returns only once the other rank is at its receive
  int tags = 0;              // message tags are taken modulo this; 0: each message has its own
  int most_activations = 0;  // forwards of a rank whose input gradient is not there yet; 0: any
  int most_weight_gradients = 0;  // input gradients of a rank that wait for W; 0: any number
};

/// The counter-example: `sentence` says which rank, which action (counted from 1 in its list) and
/// what is wrong; `drawing` shows the lists around it, with the action in brackets.
struct Finding {
  Fault fault;
  int rank, position;  // -1: of no rank
  std::string sentence, drawing;
};

/// Proves a complete table (one with its sends and receives; place_messages() adds them): each
/// forward and each backward (B, or I and W) of each stage and micro-batch is there once; F is
/// before B and I, and I before W; messages are sent after they are computed, received before they
/// are used, and matched; no rank waits for ever, whatever the ranks' speeds; no two messages that
/// may be under way at the same time have the same sender, receiver, direction and tag; memory is
/// within the bounds; and where units are gathered and dropped, they are whole whenever they
/// compute; gradients are added once over replicas, by stage when they are complete or by
/// micro-batch before the rank's next ones. Nothing where all of this holds, else the first fault,
/// in the order of the list above.
TRIREME_API std::optional<Finding> check_schedule(const Schedule& schedule,
                                                  const CheckOptions& options = {});

/// A message's tag before `tags` is applied: by the receiving stage and the micro-batch.
inline long tag_of(const Schedule& schedule, const Action& receive) {
  return static_cast<long>(receive.stage) * schedule.micro_batches + receive.micro_batch;
}

}  // namespace trireme::pipeline
