// SPDX-License-Identifier: Apache-2.0
#include "cli/worker_program.h"

#include <unistd.h>

#include <filesystem>

#include "trireme/base/check.h"

namespace trireme {

std::string find_worker_program() {
  std::error_code error;
  auto self = std::filesystem::read_symlink("/proc/self/exe", error);
  if (error) return "";
  auto worker = self.parent_path().parent_path() / TRIREME_WORKER_PATH;
  return ::access(worker.c_str(), X_OK) == 0 ? worker.string() : "";
}

std::string worker_program() {
  std::string worker = find_worker_program();
  check<ResourceError>(
      !worker.empty(),
      "the program that trains, {}, is not beside this one's bin folder: build with "
      "LibTorch (scripts/build), or install both halves",
      TRIREME_WORKER_PATH);
  return worker;
}

}  // namespace trireme
