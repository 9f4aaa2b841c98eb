// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>

#include "trireme/comm/group.h"
#include "trireme/shard/gradient_scatter.h"

namespace trireme {

/// What is done after a round about parameters that not every rank used: UsageError on all of them
/// that names them, or, with `find_unused`, a line in the log.
std::function<void()> unused_after(const GradientScatter& gradients, const Group& world,
                                   bool find_unused);

}  // namespace trireme
