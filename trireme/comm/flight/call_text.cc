// SPDX-License-Identifier: Apache-2.0
#include "trireme/comm/flight/call_text.h"

#include <fmt/core.h>

namespace trireme::flight {

std::string call_text(OpKind op, DType dtype, RedOp red, int root, uint64_t count) {
  std::string text = name_of(op);
  if (op == OpKind::barrier || op == OpKind::none) return text;
  text += fmt::format("({}[{}]", name_of(dtype), count);
  switch (op) {
    case OpKind::all_reduce:
    case OpKind::reduce_scatter:
      text += fmt::format(", {}", name_of(red));
      break;
    case OpKind::reduce:
      text += fmt::format(", {}, root {}", name_of(red), root);
      break;
    case OpKind::broadcast:
    case OpKind::gather:
    case OpKind::scatter:
      text += fmt::format(", root {}", root);
      break;
    case OpKind::send:
      text += fmt::format(", to rank {}", root);
      break;
    case OpKind::recv:
      text += root < 0 ? ", from any rank" : fmt::format(", from rank {}", root);
      break;
    default:
      break;
  }
  return text + ")";
}

}  // namespace trireme::flight
