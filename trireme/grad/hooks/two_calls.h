// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <utility>

#include "trireme/base/export.h"
#include "trireme/grad/comm_hook.h"

namespace trireme {

/// What is issued once the first call of a bucket is complete: calls of a group are issued in
/// order, and one that needs another's result must wait for it.
using SecondCall = std::function<Work()>;
using FirstCall = std::function<std::pair<Work, SecondCall>(Group&, GradBucket&, ReduceOp)>;

/// A communication hook of two calls that remembers nothing: first calls as buckets fill, second
/// calls in bucket order as the round closes (grad/hooks/stateful_hook.h). It belongs to one rank
/// and one reducer.
TRIREME_API CommHook two_calls(FirstCall first);

}  // namespace trireme
