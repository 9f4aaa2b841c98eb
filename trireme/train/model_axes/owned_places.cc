// SPDX-License-Identifier: Apache-2.0
#include "trireme/train/model_axes/owned_places.h"

#include "trireme/optim/norm_kernels.h"

namespace trireme {

std::map<std::string, int64_t> owned_places(Gradients& gradients) {
  std::map<std::string, int64_t> begins;
  const auto parts = gradients.norm_parts();
  for (const auto& [name, p] : gradients.owned())
    begins[name] =
        parts ? (parts->first_block(name) - parts->range(parts->index_of(name)).first) * kNormBlock
              : 0;
  return begins;
}

}  // namespace trireme
