// SPDX-License-Identifier: Apache-2.0
#include "trireme/tensor/random/random.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>

#include "tests/support/pretend_device/modules.h"
#include "tests/support/pretend_device/seeds.h"
#include "trireme/layers/dropout.h"
#include "trireme/models/init.h"

// What is drawn by a key is the same on every device.
namespace trireme::device_random_test {
namespace {

const std::vector<at::ScalarType> kTypes = {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16};

at::TensorOptions on(at::Device device, at::ScalarType type) {
  return at::TensorOptions(type).device(device);
}

RandomContext context(int64_t rows) {
  RandomContext c{7, 3, {}};
  for (int64_t r = 0; r < rows; ++r) c.samples.push_back(r * r + 1);
  return c;
}

}  // namespace

TEST(device_random, initial_values_are_the_cpus_and_nobody_waits_for_them) {
  pretend::for_some_seeds(3, [] {
    for (const at::ScalarType type : kTypes)
      for (const int64_t n : {1, 5, 64, 1000}) {
        at::Tensor here = at::empty({n, 3}, on(at::kCPU, type)), normal_here = here.clone();
        at::Tensor there = at::empty({n, 3}, on(pretend::device(), type)),
                   normal_there = at::empty_like(there),
                   strided = at::empty({3, n}, on(pretend::device(), type)).t();
        {
          const pretend::NoHostWaits none;
          uniform_(there, 11, -2, 3);
          normal_(normal_there, 12, 1, 0.5);
        }
        uniform_(strided, 11, -2, 3);
        uniform_(here, 11, -2, 3);
        normal_(normal_here, 12, 1, 0.5);
        EXPECT_TRUE(there.cpu().equal(here)) << type << " " << n;
        EXPECT_TRUE(strided.cpu().equal(here)) << type << " " << n;
        EXPECT_TRUE(normal_there.cpu().equal(normal_here)) << type << " " << n;
      }
  });
}

TEST(device_random, a_model_that_is_initialised_on_the_device_has_the_cpus_weights) {
  const auto made = [](at::Device device) {
    torch::nn::Sequential net(torch::nn::Linear(30, 20), torch::nn::Linear(20, 7));
    pretend::move_to(*net, device);
    init_uniform_fan_in(*net, 5);
    std::vector<at::Tensor> weights;
    for (const at::Tensor& p : net->parameters()) weights.push_back(p.detach().cpu());
    return weights;
  };
  const auto here = made(at::kCPU);
  pretend::for_some_seeds(2, [&] {
    const auto there = made(pretend::device(1));
    for (size_t i = 0; i < here.size(); ++i) EXPECT_TRUE(there[i].equal(here[i])) << i;
  });
}

TEST(device_random, dropout_drops_what_it_drops_on_the_cpu_and_so_does_its_backward) {
  const auto both = [](at::Device device, at::ScalarType type, at::IntArrayRef sizes, double p) {
    const RandomScope scope(context(sizes[0]));
    at::Tensor x = at::empty(sizes, at::kDouble);
    uniform_(x, 4, 1, 2);
    x = x.to(type).to(device).requires_grad_();
    at::Tensor y;
    {
      const pretend::NoHostWaits none;
      y = keyed_dropout(x, p, "blocks.0.drop");
      y = keyed_dropout(y, p, "blocks.0.drop");  // another call, another mask
    }
    y.backward(at::ones_like(y));
    return std::pair(y.detach().cpu(), x.grad().cpu());
  };
  const std::vector<std::vector<int64_t>> shapes = {{3, 1},       {2, 7}, {5, 128},   {1, 129},
                                                    {3, 4, 1000}, {4, 0}, {2, 300001}};
  for (const at::ScalarType type : kTypes)
    for (const auto& sizes : shapes)
      for (const double p : {0.1, 0.5, 1.0}) {
        const auto here = both(at::kCPU, type, sizes, p);
        const auto there = both(pretend::device(), type, sizes, p);
        EXPECT_TRUE(there.first.equal(here.first)) << type << " " << at::IntArrayRef(sizes) << p;
        EXPECT_TRUE(there.second.equal(here.second)) << type << " " << at::IntArrayRef(sizes) << p;
      }
}

TEST(device_random, keys_with_all_their_bits_draw_the_cpus_masks_under_every_delay) {
  const at::Tensor x = at::ones({64, 9000});
  const auto masks = [&](at::Device device, uint64_t seed) {
    RandomContext c = context(64);
    c.seed = seed;
    const RandomScope scope(c);
    return keyed_dropout(x.to(device), 0.3, "d").cpu();
  };
  for (const uint64_t seed : {uint64_t{0}, ~uint64_t{0}, uint64_t{0x8000000080000000}}) {
    const at::Tensor here = masks(at::kCPU, seed);
    pretend::for_some_seeds(3, [&] { EXPECT_TRUE(masks(pretend::device(), seed).equal(here)); });
  }
}

TEST(device_random, the_dropout_layer_draws_by_key_on_the_device) {
  Dropout layer(0.25);
  layer->set_full_name("drop");
  const at::Tensor x = at::ones({2, 500});
  const RandomScope scope(context(2));
  const RandomScope::Snapshot before = RandomScope::snapshot();
  const at::Tensor here = layer->forward(x);
  const RandomScope again(before);
  const at::Tensor there = layer->forward(x.to(pretend::device())).cpu();
  EXPECT_TRUE(there.equal(here));
  EXPECT_NEAR((there == 0).to(at::kDouble).mean().item<double>(), 0.25, 0.06);
}

}  // namespace trireme::device_random_test
