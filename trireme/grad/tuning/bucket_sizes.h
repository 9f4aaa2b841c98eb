// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include "trireme/comm/group.h"
#include "trireme/grad/bucket_plan.h"

namespace trireme {

/// Inside: the bucket sizes that suit a group's backend, where 0 leaves the choice to us.
BucketSizes bucket_sizes_for(const Group& group, size_t bytes, size_t first_bytes);

}  // namespace trireme
