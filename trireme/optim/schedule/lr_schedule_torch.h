// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <set>
#include <string>

#include "trireme/optim/schedule/lr_schedule.h"

namespace trireme::detail {

/// Inside optim: what LRScheduler does for one of torch's types.
struct TorchForm {
  std::set<std::string> used;  // options that it reads
  std::function<double(int64_t step)> at;
};
/// Throws UsageError for a missing or an impossible option.
TorchForm torch_form(const ScheduleOptions& options);

}  // namespace trireme::detail
