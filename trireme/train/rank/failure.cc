// SPDX-License-Identifier: Apache-2.0
#include "trireme/train/rank/failure.h"

#include <signal.h>

#include <cstdlib>
#include <string>

#include "trireme/base/error.h"
#include "trireme/base/log.h"
#include "trireme/launch/error_file.h"
#include "trireme/train/rank/out_of_memory.h"

namespace trireme {
namespace {

bool write_to_launcher(const Error* ours, const std::string& text) {
  const char* file = std::getenv("TORCHELASTIC_ERROR_FILE");
  if (!file || !*file) return false;
  try {
    launch::write_error_file(file, ours ? ours->kind() : "Error", text);
    return true;
  } catch (const std::exception& second) {
    log_error("{}", second.what());
    return false;
  }
}

}  // namespace

int report_failure(const std::exception& error, bool built_in_model) {
  ::signal(SIGTERM, SIG_IGN);
  const std::string text = failure_text(error, built_in_model);
  if (!write_to_launcher(dynamic_cast<const Error*>(&error), text)) log_error("{}", text);
  return exit_code_for(error);
}

}  // namespace trireme
