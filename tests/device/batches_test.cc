// SPDX-License-Identifier: Apache-2.0
#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/linear.h>

#include "tests/device/train_runs.h"
#include "tests/train/programs.h"
#include "trireme/data/device_batches.h"
#include "trireme/tensor/host_scalars.h"
#include "trireme/tensor/module_device.h"

// What a step needs on a device: its batch, its module, and its losses back.
namespace trireme::device_batches_test {
namespace {

using pretend::device;
using testing::DigitsProgram;
using testing::Folders;

Batch numbered(int64_t step) {
  Batch batch(2);
  for (int64_t i = 0; i < 2; ++i) {
    MicroBatch& m = batch[static_cast<size_t>(i)];
    m.input = at::full({3, 5}, static_cast<double>(10 * step + i));
    m.target = at::arange(3) + step;
    m.samples = {0, 1, 2};
    m.weight = 3;
    m.more = {{"noise", at::full({3}, 0.5 + static_cast<double>(step))}};
  }
  return batch;
}

void expect_same(const Batch& got, const Batch& expected) {
  ASSERT_EQ(got.size(), expected.size());
  for (size_t i = 0; i < got.size(); ++i) {
    EXPECT_TRUE(got[i].input.cpu().equal(expected[i].input)) << i;
    EXPECT_TRUE(got[i].target.cpu().equal(expected[i].target)) << i;
    EXPECT_TRUE(got[i].tensor("noise").cpu().equal(expected[i].tensor("noise"))) << i;
    EXPECT_EQ(got[i].weight, expected[i].weight);
  }
}

TEST(device_batches, arrive_as_they_were_made_whatever_is_late) {
  pretend::for_some_seeds(8, [] {
    const CurrentDevice current(device(1));
    DeviceBatches batches(device(1));
    LoaderOptions options;
    options.background = true;
    options.threads = 2;
    PrefetchingLoader loader(batches.ahead(numbered), options);
    for (int64_t step = 0; step < 6; ++step) {
      const Batch batch = batches.arrived(step, loader.next());
      EXPECT_EQ(batch[0].input.device(), device(1));
      expect_same(batch, numbered(step));
    }
  });
}

TEST(device_batches, are_copied_from_pinned_memory_and_nobody_waits_for_them) {
  const CurrentDevice current(device());
  DeviceBatches batches(device());
  const auto make = batches.ahead(numbered);
  const auto before = pretend::counters();
  Batch batch;
  {
    const pretend::NoHostWaits none;
    batch = batches.arrived(4, make(4));
  }
  EXPECT_EQ(pretend::counters().async_copies - before.async_copies, 6u);
  EXPECT_EQ(pretend::counters().staged_copies, before.staged_copies);
  expect_same(batch, numbered(4));
}

/// Takes steps of train(), and looks before the first of them is computed.
struct LooksAhead : DigitsProgram {
  explicit LooksAhead(std::function<void()> look) : look_(std::move(look)) {}
  void step(Trainer& trainer) override {
    const Batch batch = trainer.next_batch();
    if (trainer.step() == 0) look_();
    trainer.update("all", batch);
  }
  std::function<void()> look_;
};

/// Tensors of batches that were copied in a run of train() before its first step was computed,
/// while the stream of that step stood still: as many as `wanted`, if they come.
uint64_t copied_before_the_first_step(const std::string& workers, uint64_t wanted) {
  uint64_t begin = 0, copied = 0;
  pretend::run_on_devices(1, [&](Group g, c10::Device) {
    LooksAhead program([&] {
      const pretend::Hold stands_still(pretend::default_stream());
      const Deadline deadline = Deadline::after(std::chrono::seconds(30));
      do copied = pretend::counters().async_copies - begin;
      while (copied < wanted && !deadline.expired());
    });
    const Config config = Config::from_text(
        "program.json",
        R"({"train_batch_size": 16, "device": "privateuseone", "optimizer": {"type": "Adam"},
            "training": {"steps": 2}})",
        {"data.workers=" + workers});
    const Folders folders;
    TrainOptions options;
    options.run_dir = folders.run("run");
    options.built = [&] { begin = pretend::counters().async_copies; };
    train(program, config, g, options);
  });
  return copied;
}

// The step's own batch is two tensors, and so is the next one, whose step is far.
TEST(device_batches, of_the_next_step_are_copied_in_a_run_before_this_one_is_computed) {
  EXPECT_GE(copied_before_the_first_step("1", 4), 4u);
  EXPECT_EQ(copied_before_the_first_step("0", 0), 2u);
}

TEST(device_batches, without_memory_on_the_device_wait_on_the_cpu_until_there_is) {
  const CurrentDevice current(device());
  pretend::synchronize();
  DeviceBatches batches(device());
  Batch batch;
  {
    const pretend::MemoryLimit limit(pretend::memory_counts().allocated + 512);
    batch = batches.ahead(numbered)(2);
  }
  EXPECT_TRUE(is_on(batch, at::kCPU));
  batch = batches.arrived(2, std::move(batch));
  EXPECT_TRUE(is_on(batch, device()));
  expect_same(batch, numbered(2));
}

TEST(device_batches, losses_come_back_together_in_their_order) {
  pretend::for_some_seeds(8, [] {
    const CurrentDevice current(device());
    HostScalars scalars;
    {
      const pretend::NoHostWaits none;
      for (int i = 0; i < 5; ++i)
        scalars.add(i == 2 ? at::full({}, 2.25)
                           : at::full({1}, 0.25 + i, at::TensorOptions().device(device())));
    }
    EXPECT_EQ(scalars.read(), std::vector<double>({0.25, 1.25, 2.25, 3.25, 4.25}));
  });
}

TEST(device_modules, move_with_buffers_and_gradients_and_stay_the_same_tensors) {
  torch::nn::BatchNorm1d norm(4);
  torch::nn::Linear linear(4, 4);
  norm->register_module("linear", linear.ptr());
  const at::Tensor weight = linear->weight, before = weight.detach().clone();
  linear->weight.mutable_grad() = at::full({4, 4}, 3.f);
  norm->register_parameter("tied", linear->weight);
  move_module(*norm, device(2));
  EXPECT_EQ(device_of(*norm), device(2));
  EXPECT_TRUE(weight.is_same(linear->weight));
  EXPECT_TRUE(weight.is_same(norm->named_parameters()["tied"]));
  EXPECT_EQ(weight.device(), device(2));
  EXPECT_EQ(norm->running_mean.device(), device(2));
  EXPECT_TRUE(weight.detach().cpu().equal(before));
  EXPECT_TRUE(weight.grad().cpu().equal(at::full({4, 4}, 3.f)));
  linear->weight.mutable_grad() = at::Tensor();
  const CurrentDevice current(device(2));
  linear(at::ones({2, 4}, at::TensorOptions().device(device(2)))).sum().backward();
  EXPECT_TRUE(weight.grad().cpu().equal(at::full({4, 4}, 2.f)));
  move_module(*norm, at::kCPU);
  EXPECT_TRUE(weight.equal(before));
  EXPECT_TRUE(weight.grad().equal(at::full({4, 4}, 2.f)));
}

}  // namespace
}  // namespace trireme::device_batches_test
