// SPDX-License-Identifier: Apache-2.0
#include "trireme/grad/hooks/stateful_hook.h"

#include <utility>

#include "trireme/base/check.h"
#include "trireme/grad/rounds/gradient_checks.h"

namespace trireme {

BucketReduction::~BucketReduction() = default;
StatefulHook::~StatefulHook() = default;

CommHook StatefulHook::hook() {
  return [self = shared_from_this()](Group& group, GradBucket& bucket, ReduceOp op) {
    if (bucket.index == 0) self->under_way_.clear();  // an exception ended the last round
    try {
      self->under_way_.push_back(
          {static_cast<size_t>(bucket.index), group, self->start(group, bucket, op)});
    } catch (...) {
      self->under_way_.clear();  // it holds the group
      throw;
    }
    return Work([self] { self->finish(); });
  };
}

void StatefulHook::finish() {
  auto list = std::exchange(under_way_, {});
  while (!list.empty()) {
    std::vector<UnderWay> next;
    for (auto& one : list) try {
        if (one.reduction->advance()) next.push_back(std::move(one));
      } catch (const std::exception& e) {
        const auto* error = dynamic_cast<const Error*>(&e);
        if (!error || !is_fact_of_the_group(*error))
          one.group.abort(hook_failure(one.group.rank(), one.bucket, e.what()));
        throw;
      }
    list = std::move(next);
  }
}

}  // namespace trireme
