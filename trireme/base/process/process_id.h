// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "trireme/base/export.h"

// A process as a file can name it, so that who reads the file later knows whether it still lives.
namespace trireme {

struct ProcessId {
  std::string host;       // what the machine calls itself
  std::string boot;       // the kernel's boot id: another one after each start of the machine
  std::string pid_space;  // the pid namespace: in another container the same number is another one
  int64_t pid = 0;
  int64_t start = 0;  // clock ticks from boot to its start: a number that is used again differs

  bool operator==(const ProcessId&) const = default;
};

TRIREME_API ProcessId own_process_id();

enum class Presence {
  alive,      // it runs, on this host
  dead,       // it was on this host and is no more (or the host was started anew since)
  hidden,     // on this kernel, in a container whose processes are not seen from here
  elsewhere,  // on another host: nothing can be known
};

/// `start_now`: when the process with the number who.pid started, as this process sees it; nothing
/// where there is none, -1 where there is one and the system does not say when. Pure.
TRIREME_API Presence presence_of(const ProcessId& who, const ProcessId& self,
                                 std::optional<int64_t> start_now);
/// The same, asking the system.
TRIREME_API Presence presence_of(const ProcessId& who);

/// Nothing: no such process, or one that has ended and waits for its parent to notice.
TRIREME_API std::optional<int64_t> start_of_process(int64_t pid);

}  // namespace trireme
