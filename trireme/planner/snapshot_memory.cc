// SPDX-License-Identifier: Apache-2.0
#include "trireme/planner/snapshot_memory.h"

#include "trireme/planner/element_bytes.h"

namespace trireme {

int64_t snapshot_bytes(const MemoryQuestion& q, const ExchangeShape& e) {
  int64_t parameters = 0, states = 0;
  for (const ParameterShape& p : q.parameters) {
    parameters += p.numel();
    states += state_numbers(q.optimizer, p) * kFloatBytes;
  }
  states += parameters * q.master_bytes;
  const int64_t weights = parameters * q.weight_bytes;

  int64_t shared = q.parameters_on_disk ? 0 : weights, own = 0;
  if (e.gradients.type != "none" && e.gradients.error_feedback) own += parameters * kFloatBytes;
  if (e.averaging == "none") {
    shared += q.states_on_disk ? 0 : states;
  } else {
    own += weights + states;  // beside the mean, each rank's own
    if (e.averaging == "diloco") {
      shared += 2 * parameters * kFloatBytes;  // weights of the last period, momentum
      if (e.pseudo_gradients.type != "none" && e.pseudo_gradients.error_feedback)
        own += parameters * kFloatBytes;
    }
  }
  return 2 * ((shared + e.ranks - 1) / e.ranks + own);
}

}  // namespace trireme
