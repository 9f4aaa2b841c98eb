// SPDX-License-Identifier: Apache-2.0
#include "trireme/launch/process/proc_text.h"

#include <fstream>
#include <sstream>

namespace trireme::launch {

std::optional<std::string> read_if_there(const std::string& path) {
  std::ifstream file(path);
  if (!file) return std::nullopt;
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

}  // namespace trireme::launch
