// SPDX-License-Identifier: Apache-2.0
#include "trireme/front/own_program.h"

#include <filesystem>

#include "trireme/base/check.h"

namespace trireme {

std::string own_program() {
  std::error_code error;
  const auto path = std::filesystem::read_symlink("/proc/self/exe", error);
  check<ResourceError>(!error, "cannot read /proc/self/exe, to start this program again: {}",
                       error.message());
  check<ResourceError>(std::filesystem::exists(path, error),
                       "the file of this program, {}, was deleted or replaced while it started: "
                       "start it again",
                       path.string());
  return path.string();
}

}  // namespace trireme
