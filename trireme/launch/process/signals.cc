// SPDX-License-Identifier: Apache-2.0
#include "trireme/launch/process/signals.h"

#include <signal.h>
#include <string.h>

namespace trireme::launch {

std::string signal_name(int number) {
  const char* name = ::sigabbrev_np(number);
  return "SIG" + (name ? std::string(name) : std::to_string(number));
}

int signal_number(std::string_view name) {
  if (name.substr(0, 3) == "SIG") name.remove_prefix(3);
  for (int n = 1; n < NSIG; ++n) {
    const char* known = ::sigabbrev_np(n);
    if (known && name == known) return n;
  }
  return 0;
}

}  // namespace trireme::launch
