// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <mutex>
#include <string>

#include "tests/grad/codec_rounds.h"
#include "tests/shard/sharded_nets.h"
#include "tests/support/pretend_device/modules.h"
#include "tests/support/pretend_device/pretend_device.h"
#include "tests/support/ranks.h"
#include "tests/train/small_runs.h"
#include "trireme/tensor/device.h"
#include "trireme/trireme.h"

// Ranks of one group, of which one computes on the CPU and one on a device: each way to begin
// refuses them on both, before a step.
namespace trireme::device_mixed_ranks_test {
namespace {

using testing::outcome_of;
using testing::Small;

/// What each rank of two gets; rank 1 is on a device.
std::map<int, std::string> outcomes(const std::function<void(Group, at::Device)>& begin) {
  std::map<int, std::string> all;
  std::mutex mutex;
  run_threads(
      2,
      [&](Group g) {
        const at::Device device = g.rank() == 0 ? at::Device(at::kCPU) : pretend::device();
        const CurrentDevice current(device);
        const std::string said = outcome_of([&] { begin(g, device); });
        const std::lock_guard lock(mutex);
        all[g.rank()] = said;
      },
      std::chrono::seconds(60));
  return all;
}

void expect_on_both(const std::string& what, const std::string& said,
                    const std::function<void(Group, at::Device)>& begin) {
  const auto all = outcomes(begin);
  for (const int rank : {0, 1}) EXPECT_EQ(all.at(rank), said) << what << ", rank " << rank;
}

Small net_on(at::Device device) {
  Small net = testing::wide();
  if (!device.is_cpu()) pretend::move_to(*net, device);
  return net;
}

const std::string kModels =
    "Mismatch: rank 0 has its parameters on cpu and rank 1 on privateuseone: put the model on the "
    "same kind of device on every rank";

std::string runs(const std::string& place) {
  return "UsageError: " + place +
         ": rank 0 computes on cpu and rank 1 on privateuseone:0: give all ranks of a run the same "
         "kind of device (auto is the CPU on a host without a GPU)";
}

}  // namespace

TEST(device_mixed_ranks, a_wrapped_model_is_refused_whatever_its_hook) {
  expect_on_both("DDP", kModels, [](Group g, at::Device device) {
    Small net = net_on(device);
    DistributedDataParallel ddp(net, g);
  });
  for (const CompressionOptions& options : testing::every_codec(0))
    expect_on_both(options.type, kModels, [&](Group g, at::Device device) {
      Small net = net_on(device);
      DdpOptions ddp_options;
      const auto hook = make_compression(options, named_parameters(*net), g);
      ddp_options.hook = hook->hook();
      DistributedDataParallel ddp(net, g, ddp_options);
    });
}

TEST(device_mixed_ranks, a_sharded_model_is_refused_in_every_stage) {
  for (const ZeroStage stage : {ZeroStage::optimizer, ZeroStage::gradients})
    expect_on_both("stage 1 or 2", kModels, [&](Group g, at::Device device) {
      Small net = net_on(device);
      ShardedDataParallel zero(net, g, {.stage = stage});
    });
  expect_on_both("stage 3", kModels, [](Group g, at::Device device) {
    Small net = net_on(device);
    FullySharded sharded(ShardGroups{g});
    fully_shard(net->a, sharded, "a");
  });
}

TEST(device_mixed_ranks, a_run_is_refused_with_and_without_zero) {
  for (const char* stage : {"0", "1", "2", "3"})
    expect_on_both(stage, runs("--set"), [&](Group g, at::Device device) {
      build_run(testing::digits("mlp", {std::string("zero_optimization.stage=") + stage,
                                        "device=" + device.str()}),
                g);
    });
}

TEST(device_mixed_ranks, an_engine_is_refused_wherever_its_modules_lie) {
  for (const char* stage : {"0", "1", "2", "3"})
    expect_on_both(stage, runs("device"), [&](Group g, at::Device device) {
      Small net = net_on(device);
      initialize(
          net,
          Config::from_text("ds_config.json", std::string(R"({"train_micro_batch_size_per_gpu": 4,
                                      "optimizer": {"type": "Adam", "params": {"lr": 0.01}},
                                      "zero_optimization": {"stage": )") +
                                                  stage + "}}"),
          g);
    });
}

}  // namespace trireme::device_mixed_ranks_test
