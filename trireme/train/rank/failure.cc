// SPDX-License-Identifier: Apache-2.0
#include "trireme/train/rank/failure.h"

#include <signal.h>

#include <cstdlib>

#include "trireme/base/error.h"
#include "trireme/base/log.h"
#include "trireme/launch/error_file.h"
#include "trireme/train/rank/out_of_memory.h"

namespace trireme {
namespace {

bool write_to_launcher(const std::exception& error) {
  const char* file = std::getenv("TORCHELASTIC_ERROR_FILE");
  if (!file || !*file) return false;
  const auto* ours = dynamic_cast<const Error*>(&error);
  try {
    launch::write_error_file(file, ours ? ours->kind() : "Error", failure_text(error));
    return true;
  } catch (const std::exception& second) {
    log_error("{}", second.what());
    return false;
  }
}

}  // namespace

int report_failure(const std::exception& error) {
  ::signal(SIGTERM, SIG_IGN);
  if (!write_to_launcher(error)) log_error("{}", failure_text(error));
  return exit_code_for(error);
}

}  // namespace trireme
