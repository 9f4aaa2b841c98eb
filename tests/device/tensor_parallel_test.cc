// SPDX-License-Identifier: Apache-2.0
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <map>
#include <mutex>
#include <string>

#include "tests/support/pretend_device/group.h"
#include "tests/support/pretend_device/modules.h"
#include "tests/support/pretend_device/pretend_device.h"
#include "tests/support/pretend_device/seeds.h"
#include "trireme/base/check.h"
#include "trireme/comm/start/run.h"
#include "trireme/layers/tensor_parallel/gradients.h"
#include "trireme/models/parallel_gpt.h"
#include "trireme/tensor/device.h"
#include "trireme/tensor/parameter_layout.h"
#include "trireme/tensor/random/random.h"
#include "trireme/tensor/random/random_boxes.h"
#include "trireme/tensor/tied_tensors.h"

// Tensor-parallel layers on devices that are late, over a group like NCCL's and over the CPU's.
namespace trireme::device_tensor_parallel_test {
namespace {

// Losses and, by rank and name, the weights after three clipped steps.
struct Trained {
  std::map<std::string, at::Tensor> weights;
  std::vector<double> losses;
};

Trained train(Group g, at::Device device, bool sequence) {
  const TensorParallel tp(g, {.sequence_parallel = sequence, .check_inputs = true});
  ParallelGptOptions o;
  o.layers = 2, o.width = 24, o.heads = 4, o.kv_heads = 1, o.context = 8, o.vocab = 29;
  o.dropout = 0.2;
  ParallelGpt gpt(tp, o, 5);
  if (is_asynchronous(device)) pretend::move_to(gpt, device);
  const at::Tensor tokens = at::arange(16, at::kLong).mul(5).remainder(29).view({2, 8});
  Trained trained;
  for (int step = 0; step < 3; ++step) {
    const at::Tensor ids = tokens.narrow(1, 0, 7).to(device),
                     target = tokens.narrow(1, 1, 7).to(device);
    const RandomScope scope({3, step, {2 * step, 2 * step + 1}});
    const at::Tensor loss = gpt.loss_sum(gpt.forward(ids), target).div(14);
    for (const auto& [name, p] : named_parameters(gpt))
      if (p.grad().defined()) p.mutable_grad() = at::Tensor();
    loss.backward();
    add_shared_gradients(gpt, tp);
    clip_grad_norm(gpt, tp, 0.5);
    at::NoGradGuard no_grad;
    for (const auto& [name, p] : named_parameters(gpt)) at::Tensor(p).sub_(p.grad(), 0.1);
    trained.losses.push_back(loss.item<double>());
  }
  for (const auto& [name, p] : named_parameters(gpt))
    trained.weights[name] = p.detach().cpu().clone();
  return trained;
}

void as_on_the_cpu(bool staged) {
  for (const bool sequence : {false, true}) {
    std::mutex mutex;
    std::map<int, Trained> expected;
    run_threads(2, [&](Group g) {
      Trained trained = train(g, at::kCPU, sequence);
      const std::lock_guard lock(mutex);
      expected[g.rank()] = std::move(trained);
    });
    const auto on_device = [&](Group g, at::Device device) {
      const CurrentDevice current(device);
      const Trained got = train(g, device, sequence);
      const Trained& want = expected.at(g.rank());
      for (size_t i = 0; i < want.losses.size(); ++i)
        check<Error>(std::abs(got.losses[i] - want.losses[i]) < 1e-5, "loss {}: {} and {}", i,
                     got.losses[i], want.losses[i]);
      for (const auto& [name, weight] : want.weights)
        check<Error>(at::allclose(got.weights.at(name), weight, 1e-4, 1e-6), "{} differs", name);
    };
    pretend::for_some_seeds(staged ? 1 : 2, [&] {
      if (staged)
        run_threads(2, [&](Group g) { on_device(g, pretend::device(g.rank())); });
      else
        pretend::run_on_devices(2, on_device);
    });
  }
}

}  // namespace

TEST(device_tensor_parallel, a_gpt_trains_as_on_the_cpu_over_a_group_of_devices) {
  as_on_the_cpu(false);
}

TEST(device_tensor_parallel, a_gpt_trains_as_on_the_cpu_over_the_cpus_group) {
  as_on_the_cpu(true);
}

TEST(device_tensor_parallel, ids_and_targets_outside_of_the_vocabulary_are_nan) {
  pretend::run_on_devices(2, [](Group g, at::Device device) {
    const CurrentDevice current(device);
    const TensorParallel tp(g);
    VocabParallelEmbedding table(tp, 9, 4);
    {
      at::NoGradGuard no_grad;
      table.weight.fill_(1);
    }
    pretend::move_to(table, device);
    const at::Tensor rows = table.forward(at::tensor({3, 9, -1, 8}, at::kLong).to(device)).cpu();
    EXPECT_TRUE(rows.isnan().select(1, 0).to(at::kLong).equal(at::tensor({0, 1, 1, 0}, at::kLong)));
    const at::Tensor logits = at::zeros({4, 4 + g.rank()}).to(device);
    const at::Tensor losses =
        vocab_parallel_cross_entropy(logits, at::tensor({3, 9, -100, 8}, at::kLong).to(device), 9,
                                     tp, {.reduction = LossReduction::none})
            .cpu();
    EXPECT_TRUE(losses.isnan().to(at::kLong).equal(at::tensor({0, 1, 0, 0}, at::kLong)));
  });
}

TEST(device_tensor_parallel, a_large_mask_of_a_part_is_drawn_on_the_device) {
  // Above what the CPU draws for a device.
  const std::vector<int64_t> whole{2, 1024, 600};
  Box box = Box::whole(whole);
  box.offsets[1] = 400;
  box.lengths[1] = 500;
  const auto dropped = [&](at::Device where) {
    const RandomScope scope(RandomContext{3, 5, {2, 3}});
    const at::Tensor x = at::ones(box.lengths, at::TensorOptions(at::kFloat).device(where));
    return keyed_dropout(x, 0.3, "drop", whole, box).cpu();
  };
  EXPECT_TRUE(dropped(pretend::device(0)).equal(dropped(at::kCPU)));
}

}  // namespace trireme::device_tensor_parallel_test
