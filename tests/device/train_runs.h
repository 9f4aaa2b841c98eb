// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <functional>
#include <string>

#include "tests/support/pretend_device/group.h"
#include "tests/support/pretend_device/pretend_device.h"
#include "tests/support/pretend_device/seeds.h"
#include "tests/train/run_folders.h"
#include "trireme/train/trainer.h"

// Whole runs of train() on the CPU and on the pretend device.
namespace trireme::testing {

inline const std::string kOnDevice = "device=privateuseone";

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

inline Sets with(Sets sets, const Sets& more) {
  sets.insert(sets.end(), more.begin(), more.end());
  return sets;
}

inline Sets host_optimizer(const std::string& stage) {
  return {"zero_optimization.stage=" + stage, "zero_optimization.offload_optimizer.device=cpu"};
}

using MakeConfig = std::function<Config(const Sets&)>;

/// What the runs save has the CPU's bits, under every seed: of networks of LibTorch's operators,
/// which compute as on the CPU, as our optimizers do.
inline void expect_cpus_bits(const MakeConfig& config, int ranks, const Sets& sets,
                             const MakeProgram& program = {}) {
  Folders folders;
  const RunOf cpu = run_of(config(sets), ranks, folders.run("cpu"), {}, program);
  ASSERT_FALSE(cpu.bytes.empty());
  int seed = 0;
  pretend::for_some_seeds(1, [&] {
    const RunOf there = run_of(config(with(sets, {kOnDevice})), ranks,
                               folders.run("there" + std::to_string(++seed)), {}, program);
    EXPECT_TRUE(there.bytes == cpu.bytes) << ::testing::PrintToString(sets);
    EXPECT_EQ(there.result.loss, cpu.result.loss);
    EXPECT_EQ(there.result.held_out_loss, cpu.result.held_out_loss);
  });
}

/// Our fused layers have an equivalent of LibTorch's operators on devices, which rounds in another
/// way: such a run is near the CPU's, and has the bits of a device that is never late.
inline void expect_near_the_cpu(const MakeConfig& config, int ranks, const Sets& sets,
                                double near = 1e-4) {
  Folders folders;
  const Sets there = with(sets, {kOnDevice});
  const RunOf cpu = run_of(config(sets), ranks, folders.run("cpu"));
  const RunOf in_time = run_of(config(there), ranks, folders.run("in_time"));
  EXPECT_NEAR(in_time.result.loss, cpu.result.loss, near * cpu.result.loss);
  EXPECT_NEAR(in_time.result.held_out_loss, cpu.result.held_out_loss,
              near * cpu.result.held_out_loss);
  int seed = 0;
  pretend::for_some_seeds(1, [&] {
    const RunOf late = run_of(config(there), ranks, folders.run("late" + std::to_string(++seed)));
    EXPECT_TRUE(late.bytes == in_time.bytes) << ::testing::PrintToString(sets);
    EXPECT_EQ(late.result.loss, in_time.result.loss);
  });
}

}  // namespace trireme::testing
