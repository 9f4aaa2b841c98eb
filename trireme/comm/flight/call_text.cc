// SPDX-License-Identifier: Apache-2.0
#include "trireme/comm/flight/call_text.h"

#include <fmt/core.h>

namespace trireme::flight {

std::string call_text(Collective op, DType dtype, ReduceOp red, int root, uint64_t count) {
  std::string text = name_of(op);
  if (op == Collective::barrier || op == Collective::none) return text;
  text += fmt::format("({}[{}]", name_of(dtype), count);
  if (facts_of(op).reduces) text += fmt::format(", {}", name_of(red));
  if (facts_of(op).has_root) text += fmt::format(", root {}", root);
  if (op == Collective::send) text += fmt::format(", to rank {}", root);
  if (op == Collective::recv)
    text += root < 0 ? ", from any rank" : fmt::format(", from rank {}", root);
  return text + ")";
}

}  // namespace trireme::flight
