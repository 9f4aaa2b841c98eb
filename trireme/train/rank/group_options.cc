// SPDX-License-Identifier: Apache-2.0
#include "trireme/train/rank/group_options.h"

#include <chrono>

namespace trireme {

InitOptions init_options(const Config& config) {
  InitOptions o;
  o.backend = config.get_string("comm.backend");
  if (config.applies("comm.across")) o.across = config.get_string("comm.across");
  if (config.applies("comm.check")) o.check = config.get_string("comm.check");
  o.timeout = std::chrono::duration_cast<Duration>(
      std::chrono::duration<double>(config.get_double("comm.timeout_s")));
  return o;
}

}  // namespace trireme
