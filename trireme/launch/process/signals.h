// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

namespace trireme::launch {

/// SIGTERM → "SIGTERM"; a number without a name → "SIG42".
std::string signal_name(int number);
/// "SIGTERM" or "TERM" → 15; 0 where there is none.
int signal_number(std::string_view name);

}  // namespace trireme::launch
