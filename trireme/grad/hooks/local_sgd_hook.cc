// SPDX-License-Identifier: Apache-2.0
#include "trireme/grad/hooks/local_sgd_hook.h"

#include <utility>

namespace trireme {

CommHook local_sgd_hook(std::function<bool()> is_local, Group inner_group, CommHook global_hook) {
  return [is_local = std::move(is_local), inner_group = std::move(inner_group),
          global_hook = std::move(global_hook)](Group& group, GradBucket& bucket,
                                                ReduceOp op) mutable {
    if (!is_local())
      return global_hook ? global_hook(group, bucket, op) : group.all_reduce(bucket.buffer, op);
    return inner_group ? inner_group.all_reduce(bucket.buffer, op) : Work();
  };
}

}  // namespace trireme
