// SPDX-License-Identifier: Apache-2.0
#include "trireme/shard/unused_after.h"

#include "trireme/grad/rounds/unused_parameters.h"

namespace trireme {

std::function<void()> unused_after(const GradientScatter& gradients, const Group& world,
                                   bool find_unused) {
  const int ranks = world.size();
  return [&gradients, ranks, policy = find_unused ? name_unused(world.rank()) : refuse_unused()] {
    if (!gradients.step_done()) return;
    std::vector<ParameterUse> unused;
    for (size_t i = 0; i < gradients.size(); ++i)
      if (const int used = gradients.record().used_by(i);
          used < ranks && gradients.parameter(i).requires_grad())  // not frozen since
        unused.push_back({gradients.name(i), used});
    policy(unused, ranks);
  };
}

}  // namespace trireme
