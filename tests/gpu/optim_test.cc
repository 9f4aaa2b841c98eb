// SPDX-License-Identifier: Apache-2.0
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>

#include "tests/gpu/stand_in.h"
#include "tests/grad/small_net.h"
#include "tests/optim/row_makers.h"
#include "tests/optim/state_visitors.h"
#include "tests/support/parameters.h"
#include "trireme/optim/clip.h"
#include "trireme/optim/grad_scaler.h"
#include "trireme/optim/host_optimizer.h"
#include "trireme/optim/master_weights.h"

namespace optim_test {

using namespace trireme;
using namespace trireme::testing;

namespace {

const std::vector<std::pair<const char*, MakeOptimizer>> kMakers = {
    {"SGD",
     [](NamedTensors p) {
       return make_sgd(std::move(p), {0.9, 0.01, true});
     }},
    {"AdamW", [](NamedTensors p) { return make_adamw(std::move(p)); }},
    {"AdaMod", [](NamedTensors p) { return make_adamod(std::move(p)); }},
    {"Lion", [](NamedTensors p) { return make_lion(std::move(p)); }},
    {"RMSprop", [](NamedTensors p) { return make_rmsprop(std::move(p)); }},
    {"Adagrad", [](NamedTensors p) { return make_adagrad(std::move(p)); }},
    {"LARS", [](NamedTensors p) { return make_lars(std::move(p)); }},
    {"LAMB", [](NamedTensors p) { return make_lamb(std::move(p)); }},
    {"Adafactor", [](NamedTensors p) { return make_adafactor(std::move(p)); }},
};

}  // namespace

TEST(gpu_optim, every_optimizer_steps_on_the_device_as_on_the_cpu) {
  TRIREME_NEEDS_GPU();
  for (const auto& [name, make] : kMakers) {
    NamedTensors there = some_parameters(at::kFloat, at::Device(at::kCUDA, 0)),
                 here = some_parameters(at::kFloat, at::kCPU);
    auto far = make(there), near = make(here);
    for (int step = 0; step < 4; ++step) {
      give_gradients(there, step);
      give_gradients(here, step);
      far->step(0.01, 0.5);
      near->step(0.01, 0.5);
    }
    for (size_t i = 0; i < here.size(); ++i)
      EXPECT_LE(
          (there[i].second.detach().cpu() - here[i].second.detach()).abs().max().item<float>(),
          1e-5)
          << name << " " << i;
    Collect state;
    far->state(state);
    for (const auto& [key, t] : state.tensors) EXPECT_TRUE(t.is_cuda()) << name << " " << key;
  }
}

TEST(gpu_optim, touched_rows_step_on_the_device_as_on_the_cpu) {
  TRIREME_NEEDS_GPU();
  const at::Device device(at::kCUDA, 0);
  for (const RowMaker& m : row_makers()) {
    const at::Tensor here = at::arange(120, at::kFloat).mul(0.37).sin().view({30, 4});
    const at::Tensor there = here.to(device);
    auto near = m.make({"w", here}), far = m.make({"w", there});
    for (int step = 0; step < 4; ++step) {
      const at::Tensor rows = at::arange(step, 30, 1 + step % 3, at::kLong);
      const at::Tensor g = at::arange(rows.size(0) * 4, at::kFloat).cos().view({-1, 4});
      near->step(rows, g, 0.01, 0.5);
      far->step(rows.to(device), g.to(device), 0.01, 0.5);
    }
    EXPECT_LE((there.cpu() - here).abs().max().item<float>(), 1e-5) << m.name;
  }
}

TEST(gpu_optim, a_host_optimizer_has_the_bits_of_one_on_the_cpu_and_nothing_on_the_device) {
  TRIREME_NEEDS_GPU();
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16, at::kHalf})
    for (const auto& [name, make] : kMakers) {
      NamedTensors there = some_parameters(type, at::Device(at::kCUDA, 0)),
                   here = some_parameters(type, at::kCPU);
      auto far = host_optimizer(there, make);
      auto near = type == at::kFloat ? make(here) : with_master_weights(here, make);
      for (int step = 0; step < 4; ++step) {
        give_gradients(there, step);
        for (size_t i = 0; i < here.size(); ++i)
          here[i].second.mutable_grad() = there[i].second.grad().cpu();
        far->step(0.01, 0.5);
        near->step(0.01, 0.5);
      }
      for (size_t i = 0; i < here.size(); ++i)
        EXPECT_TRUE(there[i].second.detach().cpu().equal(here[i].second)) << name << " " << i;
      Collect state, plain;
      far->state(state);
      near->state(plain);
      for (const auto& [key, t] : plain.tensors) {
        EXPECT_TRUE(state.tensors.at(key).is_cpu()) << name << " " << key;
        EXPECT_TRUE(state.tensors.at(key).equal(t)) << name << " " << key;
      }
    }
}

TEST(gpu_optim, masters_of_half_weights_are_on_the_device) {
  TRIREME_NEEDS_GPU();
  NamedTensors there = some_parameters(at::kBFloat16, at::Device(at::kCUDA, 0)),
               here = some_parameters(at::kBFloat16, at::kCPU);
  auto far = with_master_weights(there, kMakers[1].second),
       near = with_master_weights(here, kMakers[1].second);
  for (int step = 0; step < 4; ++step) {
    give_gradients(here, step);
    for (size_t i = 0; i < here.size(); ++i)
      there[i].second.mutable_grad() = here[i].second.grad().to(at::Device(at::kCUDA, 0));
    far->step(0.01, 0.5);
    near->step(0.01, 0.5);
  }
  for (size_t i = 0; i < here.size(); ++i)
    EXPECT_TRUE(there[i]
                    .second.detach()
                    .cpu()
                    .to(at::kFloat)
                    .allclose(here[i].second.detach().to(at::kFloat), 1e-2))
        << i;
}

TEST(gpu_optim, norms_and_what_is_not_finite_are_as_on_the_cpu) {
  TRIREME_NEEDS_GPU();
  NamedTensors there = some_parameters(at::kFloat, at::Device(at::kCUDA, 0)),
               here = some_parameters(at::kFloat, at::kCPU);
  give_gradients(there, 1);
  give_gradients(here, 1);
  EXPECT_NEAR(grad_norm(there, 1, 0.5).norm, grad_norm(here, 1, 0.5).norm, 1e-5);
  EXPECT_EQ(first_non_finite(there), "");
  there[1].second.mutable_grad().fill_(NAN);
  EXPECT_EQ(first_non_finite(there), "p1");
}

TEST(gpu_optim, the_loss_scaler_of_all_ranks_decides_as_one) {
  TRIREME_NEEDS_GPU();
  run_on_gpus(2, [](Group g, at::Device device) {
    NamedTensors p = some_parameters(at::kFloat, device);
    GradScaler scaler({}, g);
    const at::Tensor loss = scaler.scale(at::ones({}, at::TensorOptions(at::kHalf).device(device)));
    expect(loss.is_cuda() && loss.item<double>() == scaler.scale(), "the loss is not scaled");
    give_gradients(p, 1);
    expect(scaler.unscale_(p).finite, "finite gradients are none");
    if (g.rank() == g.size() - 1) p[2].second.mutable_grad().fill_(INFINITY);
    const GradVerdict verdict = scaler.check(p);
    expect(!verdict.finite && verdict.rank == g.size() - 1 && verdict.parameter == "p2",
           "rank " + std::to_string(verdict.rank) + ", '" + verdict.parameter + "'");
    scaler.update(verdict);
  });
}

}  // namespace optim_test
