// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "trireme/base/export.h"
#include "trireme/net/secret.h"

namespace trireme::launch {

/// A GPU that workers may use.
struct Gpu {
  std::string name;  // as CUDA_VISIBLE_DEVICES names it: its number, or its UUID
  int node = -1;     // the NUMA node that it is near; -1: unknown
};

/// Those that CUDA_VISIBLE_DEVICES lists, else all of this machine. Asks the driver's files and no
/// library. `root` is put before /dev, /proc and /sys, for tests.
TRIREME_API std::vector<Gpu> visible_gpus(const net::Getenv& env = net::process_env,
                                          const std::string& root = "");

}  // namespace trireme::launch
