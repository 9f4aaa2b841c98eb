// SPDX-License-Identifier: Apache-2.0
#include "trireme/grad/master_hook.h"

#include <vector>

#include "trireme/base/check.h"

namespace trireme {
namespace {

void check_master(const Group& group, int master) {
  check<UsageError>(master >= 0 && master < group.size(),
                    "communication hook: master {} is not in a group of {}", master, group.size());
}

}  // namespace

CommHook parameter_server_hook(int master) {
  return [master](Group& group, GradBucket& bucket, ReduceOp op) {
    check_master(group, master);
    return Work(std::vector<Work>{group.reduce(bucket.buffer, master, op),
                                  group.broadcast(bucket.buffer, master)});
  };
}

CommHook reduce_to_master_hook(int master) {
  return [master](Group& group, GradBucket& bucket, ReduceOp op) {
    check_master(group, master);
    return group.reduce(bucket.buffer, master, op);
  };
}

}  // namespace trireme
