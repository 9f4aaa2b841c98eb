// SPDX-License-Identifier: Apache-2.0
#include <unistd.h>

#include <cstdio>
#include <memory>

#include "cli/worker/tasks.h"
#include "trireme/base/check.h"
#include "trireme/config/config.h"
#include "trireme/config/sections/model.h"
#include "trireme/models/gpt.h"
#include "trireme/models/sampling.h"
#include "trireme/train/run.h"

namespace trireme {

int generate_task(const Words& words) {
  const TaskOptions given(words);
  const Config config = Config::load(ConfigInputs::from({given.get("config")}));
  auto model = load_model(config, given.get("checkpoint"));
  auto gpt = std::dynamic_pointer_cast<Gpt>(model);
  check<UsageError>(gpt != nullptr, "{} is a run of a model of type {}; only gpt writes text",
                    given.get("checkpoint"), config.section<ModelSection>().type);
  SamplingOptions options;
  options.count = std::stoll(given.get("tokens"));
  options.temperature = std::stod(given.get("temperature"));
  options.top_k = std::stoll(given.get("top-k"));
  options.seed = static_cast<uint64_t>(std::stoull(given.get("seed")));
  const std::string prompt = given.get("prompt");
  std::fwrite(prompt.data(), 1, prompt.size(), stdout);
  generate(*gpt, prompt, options, [](char c) {
    // A byte at a time: it is watched while it is written. A closed pipe ends it.
    return std::fputc(c, stdout) != EOF && (c != '\n' || std::fflush(stdout) == 0);
  });
  std::fputc('\n', stdout);
  return std::fflush(stdout) == 0 ? kExitDone : kExitFailed;
}

}  // namespace trireme
