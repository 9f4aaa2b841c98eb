// SPDX-License-Identifier: Apache-2.0
// trireme-worker: the half of the command that links torch. Started by `trireme
// train|generate|bench`, one process a rank.
#include <signal.h>

#include <cstdlib>
#include <exception>
#include <string>

#include "cli/worker/out_of_memory.h"
#include "cli/worker/tasks.h"
#include "trireme/base/check.h"
#include "trireme/base/log.h"
#include "trireme/base/standard_streams.h"
#include "trireme/launch/error_file.h"

namespace trireme {
namespace {

int dispatch(const Words& words) {
  check<UsageError>(!words.empty(), "trireme-worker is started by 'trireme train' and its like");
  const Words rest(words.begin() + 1, words.end());
  if (words[0] == "train") return train_task(rest);
  if (words[0] == "generate") return generate_task(rest);
  if (words[0] == "bench") return bench_task(rest);
  if (words[0] == "about") return about_task(rest);
  if (words[0] == "measure") return measure_task(rest);
  if (words[0] == "half-rate") return half_rate_task(rest);
  fail<UsageError>("trireme-worker: no task '{}'", words[0]);
}

// The launcher prints one report for the job; without one this process says it itself.
void report(const std::exception& error) {
  const auto* ours = dynamic_cast<const Error*>(&error);
  if (const char* file = std::getenv("TORCHELASTIC_ERROR_FILE"); file && *file) {
    try {
      launch::write_error_file(file, ours ? ours->kind() : "Error", message_of(error));
      return;
    } catch (const std::exception& second) {
      log_error("{}", second.what());
    }
  }
  log_error("{}", message_of(error));
}

}  // namespace
}  // namespace trireme

int main(int argc, char** argv) {
  trireme::open_missing_standard_streams();
  trireme::set_log_level(trireme::LogLevel::info);
  try {
    return trireme::dispatch(trireme::Words(argv + 1, argv + argc));
  } catch (const std::exception& error) {
    // The launcher ends the ranks when one has failed: this one's report and code are not lost to
    // it.
    ::signal(SIGTERM, SIG_IGN);
    trireme::report(error);
    return trireme::exit_code_for(error);
  }
}
