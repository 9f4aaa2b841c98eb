// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trireme/base/encoding.h"
#include "trireme/base/export.h"

namespace trireme::rpc::plan {

/// Where a synchronous server stands: what it could begin with.
struct Standing {
  uint64_t epoch = 0;          // how often servers have begun together
  bool fresh = true;           // it has made no step, and can begin with a worker's values
  std::vector<int64_t> steps;  // of its checkpoints
  std::vector<int32_t> lost;   // workers that are left out
  TRIREME_FIELDS(epoch, fresh, steps, lost)
};

/// With what all servers begin.
struct Decision {
  uint64_t epoch = 0;
  bool fresh = true;  // with a worker's values, at step 0; else from the checkpoint of `step`
  int64_t step = 0;
  std::vector<int32_t> lost;  // left out from now on
  TRIREME_FIELDS(epoch, fresh, step, lost)
};

/// The newest step that every server has, with everybody but those that some server has lost; the
/// worker that asks is not lost. UsageError, naming servers, where there is none.
TRIREME_API Decision decide(const std::vector<std::string>& servers,
                            const std::vector<Standing>& standings, int asks);

}  // namespace trireme::rpc::plan
