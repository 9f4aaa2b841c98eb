// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

// How the memory of a worker's events comes to its launcher: on a socket in the launcher's private
// folder, whose path is in TRIREME_EVENTS. One message, with the descriptor.
namespace trireme {

inline constexpr const char* kEventsVariable = "TRIREME_EVENTS";

struct EventHandover {
  static constexpr uint32_t kMagic = 0x76655254;  // "TRev"
  uint32_t magic = kMagic;
  uint32_t version = 1;
  int32_t rank = -1;  // RANK of its environment; -1: none
  int32_t reserved = 0;
};

}  // namespace trireme
