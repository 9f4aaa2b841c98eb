// SPDX-License-Identifier: Apache-2.0
// trireme-worker: the half of the command that links torch. Started by `trireme
// train|generate|bench`, one process a rank.
#include <exception>
#include <string>

#include "cli/worker/tasks.h"
#include "trireme/base/check.h"
#include "trireme/base/log.h"
#include "trireme/base/process/standard_streams.h"
#include "trireme/train/rank/failure.h"
#include "trireme/train/rank/train_rank.h"
#include "trireme/train/trainer.h"

namespace trireme {
namespace {

int train_task(const Words& words) {
  MainProgram program;
  program.train = [](const Config& config, Group world, const TrainOptions& options) {
    return train(config, std::move(world), options);
  };
  program.built_in_model = true;
  return train_rank(words, program);
}

int dispatch(const Words& words) {
  check<UsageError>(!words.empty(), "trireme-worker is started by 'trireme train' and its like");
  const Words rest(words.begin() + 1, words.end());
  if (words[0] == "train") return train_task(rest);
  if (words[0] == "generate") return generate_task(rest);
  if (words[0] == "bench") return bench_task(rest);
  if (words[0] == "about") return about_task(rest);
  if (words[0] == "device") return device_task(rest);
  if (words[0] == "measure") return measure_task(rest);
  if (words[0] == "half-rate") return half_rate_task(rest);
  fail<UsageError>("trireme-worker: no task '{}'", words[0]);
}

}  // namespace
}  // namespace trireme

int main(int argc, char** argv) {
  trireme::open_missing_standard_streams();
  trireme::set_log_level(trireme::LogLevel::info);
  try {
    return trireme::dispatch(trireme::Words(argv + 1, argv + argc));
  } catch (const std::exception& error) {
    return trireme::report_failure(error);
  }
}
