// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "trireme/base/clock.h"

namespace trireme::doctor {

/// What a program wrote to stdout; its stderr is thrown away. `failed`: "", or why there is no
/// answer.
struct Answer {
  std::string text, failed;
};
Answer ask(const std::vector<std::string>& command, Duration patience);

}  // namespace trireme::doctor
