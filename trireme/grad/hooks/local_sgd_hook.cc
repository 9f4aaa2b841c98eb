// SPDX-License-Identifier: Apache-2.0
#include "trireme/grad/hooks/local_sgd_hook.h"

#include <utility>

namespace trireme {

CommHook local_sgd_hook(std::function<bool()> local, Group near, CommHook together) {
  return [local = std::move(local), near = std::move(near), together = std::move(together)](
             Group& group, GradBucket& bucket, ReduceOp op) mutable {
    if (!local())
      return together ? together(group, bucket, op) : group.all_reduce(bucket.buffer, op);
    return near ? near.all_reduce(bucket.buffer, op) : Work();
  };
}

}  // namespace trireme
