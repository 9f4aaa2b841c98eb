// SPDX-License-Identifier: Apache-2.0
#include "trireme/train/rank/group_options.h"

#include <chrono>

#include "trireme/config/sections/comm.h"

namespace trireme {

InitOptions init_options(const Config& config) {
  const auto comm = config.section<CommSection>();
  InitOptions o;
  o.backend = comm.backend;
  if (config.applies("comm.across")) o.across = comm.across;
  if (config.applies("comm.check")) o.check = comm.check;
  o.timeout = std::chrono::duration_cast<Duration>(std::chrono::duration<double>(comm.timeout_s));
  return o;
}

}  // namespace trireme
