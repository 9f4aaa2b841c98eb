// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdlib>
#include <filesystem>
#include <functional>
#include <string>

#include "tests/support/pretend_device/group.h"
#include "tests/support/pretend_device/pretend_device.h"
#include "tests/train/run_folders.h"
#include "trireme/train/trainer.h"

// Whole runs of train() on the CPU and on the pretend device.
namespace trireme::testing {

inline const std::string kOnDevice = "device=privateuseone";

inline int seeds() { return std::getenv("TRIREME_SOAK") ? 20 : 1; }

/// body(group) as n ranks on threads, on a device each if the configuration says so.
inline void on_ranks(int n, const Config& config, const std::function<void(Group)>& body) {
  if (config.get_string("device").starts_with("privateuseone"))
    pretend::run_on_devices(n, [&](Group g, c10::Device) { body(std::move(g)); });
  else
    run_threads(n, body, std::chrono::seconds(120));
}

struct RunOf {
  TrainResult result;
  std::string bytes;               // of the last checkpoint: weights, and what the optimizer holds
  std::vector<std::string> lines;  // that the run said
};

using MakeProgram = std::function<std::unique_ptr<Program>()>;

/// Trains what the configuration names, or a program.
inline RunOf run_of(const Config& config, int ranks, const std::string& folder,
                    const std::optional<std::string>& resume = {}, const MakeProgram& make = {}) {
  RunOf run;
  on_ranks(ranks, config, [&](Group g) {
    TrainOptions options;
    options.run_dir = folder;
    options.resume = resume;
    if (g.rank() == 0) options.say = [&](const std::string& line) { run.lines.push_back(line); };
    const auto program = make ? make() : nullptr;
    const TrainResult r = program ? train(*program, config, g, options) : train(config, g, options);
    if (g.rank() == 0) run.result = r;
  });
  run.bytes = all_bytes_of(folder);
  return run;
}

}  // namespace trireme::testing
