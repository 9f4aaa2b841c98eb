// SPDX-License-Identifier: Apache-2.0
#include "trireme/train/setup/reproducible.h"

#include "trireme/base/check.h"
#include "trireme/tensor/random/stock_random.h"

namespace trireme {
namespace {

bool power_of_two(int64_t n) { return n > 0 && (n & (n - 1)) == 0; }

}  // namespace

void check_reproducible(const Group& group, int64_t leaves, const PrecisionPlan& plan,
                        const Model& model) {
  check<UsageError>(power_of_two(leaves) && power_of_two(group.size()),
                    "training.reproducible: {} leaves on {} ranks; both must be powers of two",
                    leaves, group.size());
  check<UsageError>(group.size() == 1 || group.backend() == "local",
                    "training.reproducible: the {} backend adds in an order of its own; use the "
                    "local backend, whose ranks, all on one host, add along the tree",
                    group.backend());
  check<UsageError>(plan.stored == at::kFloat && plan.wire == at::kFloat,
                    "training.reproducible: {} makes gradient buckets half precision, and sums of "
                    "those depend on the split. Take torch_autocast (float32 gradients), or turn "
                    "reproducible off",
                    plan.wire == plan.stored ? plan.asked : "communication_data_type");
  check<UsageError>(
      model.buffers().empty(),
      "training.reproducible: the model has running statistics, which depend on the split");
  const auto drawn = find_stock_random(model);
  check<UsageError>(!drawn,
                    "training.reproducible: '{}' is a {}, which draws from LibTorch's generator: "
                    "what it draws depends on the split into ranks. Take {}",
                    drawn ? drawn->path : "", drawn ? drawn->type : "",
                    drawn ? drawn->instead : "");
}

}  // namespace trireme
