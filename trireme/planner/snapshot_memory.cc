// SPDX-License-Identifier: Apache-2.0
#include "trireme/planner/snapshot_memory.h"

#include "trireme/planner/element_bytes.h"

namespace trireme {

int64_t snapshot_bytes(const MemoryQuestion& q, const ExchangeShape& e) {
  int64_t parameters = 0, shared = 0, own = 0;
  for (const ParameterShape& p : q.parameters) {
    const int64_t n = p.numel(), weights = n * q.weight_bytes;
    const int64_t states = state_numbers(q.optimizer, p) * kFloatBytes + n * q.master_bytes;
    parameters += n;
    int64_t alike = q.parameters_on_disk ? 0 : weights;
    if (e.averaging != "none")
      own += weights + states;  // beside the mean, each rank's own
    else if (!q.states_on_disk)
      alike += states;
    if (p.savers > 0) shared += (alike + p.savers - 1) / p.savers;
  }
  if (e.gradients.type != "none" && e.gradients.error_feedback) own += parameters * kFloatBytes;
  if (e.averaging == "diloco") {
    shared += 2 * parameters * kFloatBytes;  // weights of the last period, momentum
    if (e.pseudo_gradients.type != "none" && e.pseudo_gradients.error_feedback)
      own += parameters * kFloatBytes;
  }
  return 2 * ((shared + e.ranks - 1) / e.ranks + own);
}

}  // namespace trireme
