// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fstream>
#include <memory>
#include <string>
#include <utility>

#include "tests/channel/workers.h"
#include "trireme/channel/local/hub.h"

namespace trireme::channel {

inline std::unique_ptr<Hub> make_local(conformance::HubSettings settings) {
  return local_hub(
      {.self = settings.self, .accept = std::move(settings.accept), .spin = settings.spin});
}

/// Bytes of memory without a name that this process has mapped: windows, lanes, doorbells.
inline uint64_t mapped_bytes() {
  std::ifstream maps("/proc/self/maps");
  uint64_t bytes = 0;
  for (std::string line; std::getline(maps, line);) {
    if (line.find("memfd:trireme") == std::string::npos) continue;
    const size_t dash = line.find('-');
    bytes += std::stoull(line.substr(dash + 1), nullptr, 16) - std::stoull(line, nullptr, 16);
  }
  return bytes;
}

}  // namespace trireme::channel
