// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "trireme/base/clock.h"

namespace trireme::doctor {

/// What a program wrote to stdout; its stderr is thrown away. `failed`: "", or why there is no
/// answer. `env`: variables that it gets beside this process's ("" values are left out).
struct Answer {
  std::string text, failed;
};
Answer ask(const std::vector<std::string>& command, Duration patience,
           const std::vector<std::pair<std::string, std::string>>& env = {});

}  // namespace trireme::doctor
