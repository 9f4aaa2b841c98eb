// SPDX-License-Identifier: Apache-2.0
#include "trireme/pipeline/pipeline.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "tests/support/pretend_device/group.h"
#include "tests/support/pretend_device/modules.h"
#include "tests/support/pretend_device/pretend_device.h"
#include "tests/support/pretend_device/seeds.h"
#include "trireme/comm/start/run.h"
#include "trireme/tensor/device.h"

// A pipeline of a user's own loop on devices whose streams are late: the CPU's bits.
namespace trireme::device_pipeline_test {
namespace {

using pipeline::Schedule;
using Tensors = std::vector<at::Tensor>;

constexpr int kWidth = 12, kRows = 3, kMicroBatches = 4, kSteps = 2;

/// One of four stages; each passes on the mean of what it got beside what it computes.
struct StageImpl : torch::nn::Module {
  explicit StageImpl(int index) {
    torch::NoGradGuard no_grad;
    torch::Generator g = at::make_generator<at::CPUGeneratorImpl>(100 + index);
    for (at::Tensor& p : parameters()) p.normal_(0, 0.3, g);
  }
  Tensors forward(const Tensors& in) {
    const at::Tensor x = in[0] + down(torch::tanh(up(norm(in[0]))));
    return {x, in.size() > 1 ? in[1] + x.mean(1, true) : x.mean(1, true)};
  }
  torch::nn::LayerNorm norm =
      register_module("norm", torch::nn::LayerNorm(torch::nn::LayerNormOptions({kWidth})));
  torch::nn::Linear up = register_module("up", torch::nn::Linear(kWidth, 2 * kWidth)),
                    down = register_module("down", torch::nn::Linear(2 * kWidth, kWidth));
};
TORCH_MODULE(Stage);

/// By name: losses of the last step, and the weights of all stages.
using Result = std::map<std::string, at::Tensor>;

/// Trains this rank's stages by hand: Pipeline, and SGD of torch::optim.
void train(Group g, at::Device device, const Schedule& schedule, Result& result,
           std::mutex& mutex) {
  const CurrentDevice current(device);
  std::map<int, Stage> mine;
  std::vector<PipelineStage> stages;
  std::vector<at::Tensor> parameters;
  for (int s = 0; s < schedule.stages(); ++s) {
    if (schedule.rank_of_stage[static_cast<size_t>(s)] != g.rank()) continue;
    Stage stage(s);
    if (is_asynchronous(device)) pretend::move_to(*stage, device);
    mine.emplace(s, stage);
    for (const at::Tensor& p : stage->parameters()) parameters.push_back(p);
    stages.push_back({s, [stage](const Tensors& in, int) mutable { return stage->forward(in); }});
  }
  torch::optim::SGD optimizer(parameters, torch::optim::SGDOptions(0.1).momentum(0.9));
  Pipeline pipeline(g, schedule, stages, {.device = device});
  const auto rows = [&](int64_t number) {  // of lengths that differ
    const int64_t n = (kRows + number % 2) * kWidth;
    return (at::arange(n, at::kFloat) * 0.37 + static_cast<double>(number))
        .sin()
        .view({-1, kWidth});
  };
  Tensors losses;
  for (int step = 0; step < kSteps; ++step) {
    optimizer.zero_grad();
    losses = pipeline.step(
        [&](int i) { return Tensors{rows(step * kMicroBatches + i).to(device)}; },
        [&](const Tensors& out, int) { return (out[0] * out[1]).pow(2).mean() / kMicroBatches; });
    optimizer.step();
  }
  const std::lock_guard lock(mutex);
  for (size_t i = 0; i < losses.size(); ++i)
    result["loss " + std::to_string(i)] = losses[i].detach().cpu();
  for (auto& [s, stage] : mine)
    for (const auto& item : stage->named_parameters())
      result[std::to_string(s) + "." + item.key()] = item.value().detach().cpu().clone();
}

using RunRanks = std::function<void(const std::function<void(Group, at::Device)>&)>;

Result on(const RunRanks& run, const Schedule& schedule) {
  Result result;
  std::mutex mutex;
  run([&](Group g, at::Device device) { train(g, device, schedule, result, mutex); });
  return result;
}

}  // namespace

TEST(device_pipeline, of_a_loop_of_ones_own_ends_with_the_cpus_bits) {
  const RunRanks on_cpus = [](const auto& fn) {
    run_threads(2, [&](Group g) { fn(g, at::kCPU); });
  };
  const std::map<std::string, RunRanks> groups{
      {"of devices", [](const auto& fn) { pretend::run_on_devices(2, fn); }},
      {"of the CPU",
       [](const auto& fn) { run_threads(2, [&](Group g) { fn(g, pretend::device(g.rank())); }); }}};
  for (const char* name : {"1f1b", "zb_h1", "zb_v"}) {
    const Schedule schedule =
        pipeline::generate_schedule(name, {.ranks = 2,
                                           .micro_batches = kMicroBatches,
                                           .stages_per_rank = std::string(name) == "zb_v" ? 2 : 1});
    const Result want = on(on_cpus, schedule);
    EXPECT_EQ(want.size(), kMicroBatches + 6u * static_cast<size_t>(schedule.stages()));
    for (const auto& [group, run] : groups)
      pretend::for_some_seeds(1, [&, &group = group, &run = run] {
        const Result got = on(run, schedule);
        ASSERT_EQ(got.size(), want.size());
        for (const auto& [what, tensor] : want)
          EXPECT_TRUE(got.at(what).equal(tensor))
              << what << " by " << name << " over a group " << group;
      });
  }
}

}  // namespace trireme::device_pipeline_test
