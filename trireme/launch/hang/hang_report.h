// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "trireme/base/export.h"
#include "trireme/launch/hang/hang_guard.h"

namespace trireme::launch {

struct HangFolders {
  std::string log;     // of the attempt; "": it does not stay
  std::string flight;  // where ranks write down their last calls; "": nowhere
};

/// Before ranks that hang are killed: those that answer write down their last calls, and the
/// kernel's view of every thread goes to a file hang.txt in one of the folders, with the stacks of
/// each rank if eu-stack or gdb is installed and the system lets them look. Says in the log what is
/// where, and in a line for each rank what it does. Takes at most some seconds; never throws.
TRIREME_API void report_hang(const HangGuard::Hang& hang, const HangFolders& folders) noexcept;

}  // namespace trireme::launch
