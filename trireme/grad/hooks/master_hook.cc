// SPDX-License-Identifier: Apache-2.0
#include "trireme/grad/hooks/master_hook.h"

#include <utility>

#include "trireme/base/check.h"
#include "trireme/grad/hooks/two_calls.h"

namespace trireme {
namespace {

void check_master(const Group& group, int master) {
  check<UsageError>(master >= 0 && master < group.size(),
                    "communication hook: master {} is not in a group of {}", master, group.size());
}

}  // namespace

CommHook parameter_server_hook(int master) {
  return two_calls([master](Group& group, GradBucket& bucket, ReduceOp op) {
    check_master(group, master);
    const SecondCall send_back = [group, buffer = bucket.buffer, master]() mutable {
      return group.broadcast(buffer, master);
    };
    return std::pair(group.reduce(bucket.buffer, master, op), send_back);
  });
}

CommHook reduce_to_master_hook(int master) {
  return [master](Group& group, GradBucket& bucket, ReduceOp op) {
    check_master(group, master);
    return group.reduce(bucket.buffer, master, op);
  };
}

}  // namespace trireme
