// SPDX-License-Identifier: Apache-2.0
#include "trireme/pipeline/schedule/action.h"

namespace trireme::pipeline {

const char* word_of(ActionKind kind) {
  switch (kind) {
    case ActionKind::forward: return "F";
    case ActionKind::input_gradient: return "I";
    case ActionKind::weight_gradient: return "W";
    case ActionKind::backward: return "B";
    case ActionKind::send_forward: return "SEND_F";
    case ActionKind::recv_forward: return "RECV_F";
    case ActionKind::send_backward: return "SEND_B";
    case ActionKind::recv_backward: return "RECV_B";
    case ActionKind::unshard: return "UNSHARD";
    case ActionKind::reshard: return "RESHARD";
    case ActionKind::reduce_gradients: return "REDUCE_GRAD";
  }
  return "?";
}

std::string text_of(const Action& action) {
  std::string text = std::to_string(action.stage) + word_of(action.kind);
  if (action.micro_batch != Action::kNone) text += std::to_string(action.micro_batch);
  return text;
}

}  // namespace trireme::pipeline
