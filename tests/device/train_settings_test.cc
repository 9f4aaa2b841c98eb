// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <signal.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/device/train_runs.h"
#include "tests/train/scripted_speed.h"
#include "trireme/checkpoint/steps/run_folder/newest_good.h"
#include "trireme/train/balance/balance.h"

// Runs of train() on a device with what a configuration may ask for besides the plain step: each
// ends with the CPU's bits, or near them where sums are added in another order.
namespace trireme::device_train_settings_test {
namespace {

using namespace trireme::testing;

Config mlp(const Sets& sets) { return digits("mlp", with({"training.steps=6"}, sets)); }

std::vector<nlohmann::json> metrics_of(const std::string& folder) {
  std::vector<nlohmann::json> lines;
  std::istringstream text(read_file(folder + "/metrics.jsonl"));
  for (std::string line; std::getline(text, line);) lines.push_back(nlohmann::json::parse(line));
  return lines;
}

}  // namespace

// On a device the gradients of a layer arrive in another order, and so lie in their bucket. int8
// has blocks of a bucket; the other codecs look at each parameter by itself.
TEST(device_train_settings, every_codec_has_the_cpus_results_or_is_near_them) {
  for (const Sets& codec :
       {Sets{"compression.type=topk", "compression.density=0.05"}, Sets{"compression.type=sign"},
        Sets{"compression.type=powersgd", "compression.rank=2"},
        Sets{"compression.type=sign", "gradient_clipping=0.5"}})
    expect_near_the_cpu(mlp, 2, codec, 1e-5);  // products in panels, as in train_test.cc
  for (const Sets& codec :
       {Sets{"compression.type=int8"},
        Sets{"compression.type=int8", "gradient_clipping=0.5", "compression.error_feedback=false"}})
    expect_near_the_cpu(mlp, 2, codec, 1e-3);
}

// What it chooses depends on the clock.
TEST(device_train_settings, the_automatic_codec_trains_to_about_the_cpus_loss) {
  const Folders folders;
  const Sets sets{"compression.type=auto", "training.steps=12"};
  const RunOf cpu = run_of(mlp(sets), 2, folders.run("cpu")),
              there = run_of(mlp(with(sets, {kOnDevice})), 2, folders.run("there"));
  EXPECT_EQ(there.result.steps, 12);
  EXPECT_NEAR(there.result.loss, cpu.result.loss, 0.2 * cpu.result.loss);
}

TEST(device_train_settings, ranks_that_step_apart_end_with_the_cpus_bits) {
  for (const Sets& apart :
       {Sets{"averaging.type=local_sgd", "averaging.period=4"},
        Sets{"averaging.type=local_sgd", "averaging.period=3", "averaging.start_step=4",
             "gradient_clipping=0.5"},
        Sets{"averaging.type=diloco", "averaging.period=3"},
        Sets{"averaging.type=diloco", "averaging.period=3", "averaging.compression=int8"}})
    expect_cpus_bits(mlp, 2, apart);
  expect_cpus_bits(
      mlp, 4,
      {"averaging.type=hierarchical", "averaging.group_sizes=[2, 4]", "averaging.periods=[2, 4]"});
}

TEST(device_train_settings, every_strategy_ends_with_the_cpus_bits_or_near_them) {
  for (const char* strategy : {"parameter_server", "broadcast_parameters"})
    expect_cpus_bits(mlp, 2, {std::string("comm.strategy=") + strategy});
  expect_near_the_cpu(mlp, 2, {"comm.strategy=adasum"});
}

TEST(device_train_settings, the_noise_of_gradients_is_measured_and_changes_no_bit) {
  const Sets measured{"monitor.gradient_noise_scale=true"};
  expect_cpus_bits(mlp, 2, measured);
  const Folders folders;
  const auto scale = [&](const std::string& name, const Sets& sets) {
    const std::string folder = folders.run(name);
    run_of(mlp(with(measured, sets)), 2, folder);
    double last = NAN;
    for (const auto& line : metrics_of(folder))
      if (line.contains("gradient_noise_scale") && line["gradient_noise_scale"].is_number())
        last = line["gradient_noise_scale"];
    return last;
  };
  const double cpu = scale("cpu", {}), there = scale("there", {kOnDevice});
  ASSERT_TRUE(std::isfinite(cpu));
  EXPECT_NEAR(there, cpu, 1e-3 * std::abs(cpu));
}

TEST(device_train_settings, options_of_groups_of_parameters_and_rates_of_layers_are_the_cpus) {
  for (const Sets& optimizer : {Sets{"optimizer.type=AdamW",
                                     "optimizer.params={\"lr\": 0.01, \"weight_decay\": 0.1, "
                                     "\"no_decay\": [\"*bias\"]}"},
                                Sets{"optimizer.type=Lamb",
                                     "optimizer.params={\"lr\": 0.01, \"weight_decay\": 0.1, "
                                     "\"no_decay\": [\"*bias\"]}"},
                                Sets{"optimizer.type=Lars",
                                     "optimizer.params={\"lr\": 0.1, \"momentum\": 0.9, "
                                     "\"no_adapt\": [\"*bias\"]}"}})
    for (const char* stage : {"0", "2"})
      expect_cpus_bits(mlp, 2, with(optimizer, {std::string("zero_optimization.stage=") + stage}));
}

TEST(device_train_settings, state_of_the_optimizer_in_a_file_has_the_cpus_bits) {
  const Folders folders;
  const std::string nvme = folders.run("nvme");
  for (const char* stage : {"1", "2", "3"})
    for (const int ranks : {1, 2})
      expect_cpus_bits(mlp, ranks,
                       {std::string("zero_optimization.stage=") + stage,
                        "zero_optimization.offload_optimizer.device=nvme",
                        "zero_optimization.offload_optimizer.nvme_path=" + nvme,
                        "zero_optimization.sub_group_size=4096",
                        "zero_optimization.offload_optimizer.pipeline_read=true",
                        "optimizer.type=AdamW", "optimizer.params={\"lr\": 0.01}"});
}

TEST(device_train_settings, batches_by_tokens_are_near_the_cpus) {
  const Folders folders;
  const std::string path = write_short_documents(folders.folder);
  const std::string section = "data_efficiency.data_sampling.dynamic_batching.";
  for (const int ranks : {1, 2})
    expect_near_the_cpu(
        [&](const Sets& sets) { return tiny_gpt(path, sets); }, ranks,
        {"data.type=documents", "model.dropout=0", "model.layers=1", "training.steps=4",
         "training.eval_batches=2", "data_efficiency.enabled=true",
         "data_efficiency.data_sampling.enabled=true", section + "enabled=true",
         section + "max_tokens=64", section + "sequence_picking_order=random"});
}

// A speed of its own for each rank: the deal, and so every bit, is the CPU's.
TEST(device_train_settings, ranks_of_unequal_speed_share_every_step_as_on_the_cpu) {
  for (const char* stage : {"0", "1"}) {
    const auto shared = [&](const Sets& more) {
      const Config config =
          mlp(with({"balance.mode=throughput", "balance.every=3", "balance.memory_backoff=false",
                    std::string("zero_optimization.stage=") + stage},
                   more));
      std::vector<Shares> shares;
      std::vector<double> losses;
      on_ranks(2, config, [&](Group g) {
        trireme::Run run = build_run(config, g);
        const auto speed = script_speed(run, g.rank() == 0 ? 1000 : 3000);
        start_data(run, config);
        for (int i = 0; i < 9; ++i) {
          const StepReport r = train_step(run);
          EXPECT_EQ(r.samples, 16);
          if (g.rank() != 0) continue;
          losses.push_back(r.loss);
          shares.push_back(run.find<Balance>()->shares(i));
        }
      });
      return std::pair(shares, losses);
    };
    const auto cpu = shared({});
    EXPECT_EQ(cpu.first.front(), (Shares{8, 8}));
    EXPECT_EQ(cpu.first.back(), (Shares{12, 4}));
    int seed = 0;
    pretend::for_some_seeds(1, [&] {
      const auto there = shared({kOnDevice});
      EXPECT_EQ(there.first, cpu.first) << "stage " << stage << ", seed " << ++seed;
      EXPECT_EQ(there.second, cpu.second) << "stage " << stage;
    });
  }
}

TEST(device_train_settings, the_best_checkpoints_are_the_cpus) {
  const Folders folders;
  const auto kept = [&](const std::string& name, const Sets& sets) {
    const std::string folder = folders.run(name);
    run_of(mlp(with({"training.steps=8", "training.eval_every=2", "checkpoint.every=2",
                     "optimizer.params.lr=0.3", "checkpoint.keep=1", "checkpoint.keep_best=2"},
                    sets)),
           2, folder);
    std::vector<std::string> steps;
    for (const auto& entry : std::filesystem::directory_iterator(folder))
      if (entry.path().filename().string().starts_with("step-"))
        steps.push_back(entry.path().filename());
    std::sort(steps.begin(), steps.end());
    return steps;
  };
  const auto cpu = kept("cpu", {});
  EXPECT_GE(cpu.size(), 2u);
  int seed = 0;
  pretend::for_some_seeds(
      1, [&] { EXPECT_EQ(kept("there" + std::to_string(++seed), {kOnDevice}), cpu); });
}

// As `trireme train --resume` finds where to go on, with SIGTERM after the third step.
TEST(device_train_settings, a_run_stopped_by_sigterm_goes_on_with_the_cpus_bits_on_either_kind) {
  const Folders folders;
  const RunOf whole = run_of(mlp({}), 2, folders.run("whole"));
  int seed = 0;
  pretend::for_some_seeds(1, [&] {
    const std::string all = std::to_string(++seed);
    for (const char* async : {"true", "false"})
      for (const bool begins_there : {true, false}) {
        const std::string folder =
            folders.run(std::string(begins_there ? "there" : "here") + async + all);
        const Sets saves{std::string("checkpoint.async=") + async};
        const Sets there = with(saves, {kOnDevice});
        const Config first = mlp(begins_there ? there : saves),
                     second = mlp(begins_there ? saves : there);
        TrainResult stopped;
        on_ranks(2, first, [&](Group g) {
          TrainOptions options;
          options.run_dir = folder;
          int looks = 0;
          options.stop_asked = [&] { return ++looks == 3 ? SIGTERM : 0; };
          const TrainResult r = train(first, g, options);
          if (g.rank() == 0) stopped = r;
        });
        EXPECT_EQ(stopped.stopped, SIGTERM);
        EXPECT_LT(stopped.steps, 6);
        const std::string found = newest_good_step(folder);
        ASSERT_NE(found, "");
        const RunOf rest = run_of(second, 2, folder, found);
        EXPECT_TRUE(rest.bytes == whole.bytes)
            << (begins_there ? "from the device, " : "to the device, ") << async;
      }
  });
}

}  // namespace trireme::device_train_settings_test
