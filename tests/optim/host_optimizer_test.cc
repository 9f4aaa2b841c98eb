// SPDX-License-Identifier: Apache-2.0
#include "trireme/optim/host_optimizer.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tests/optim/state_visitors.h"
#include "tests/support/parameters.h"
#include "trireme/base/error.h"
#include "trireme/tensor/state.h"

namespace host_optimizer_test {

using namespace trireme;
using trireme::testing::give_gradients;
using trireme::testing::some_parameters;

namespace {

const MakeOptimizer kAdamW = [](NamedTensors p) { return make_adamw(std::move(p)); };

const std::vector<std::pair<const char*, MakeOptimizer>> kMakers = {
    {"SGD",
     [](NamedTensors p) {
       return make_sgd(std::move(p), {0.9, 0.01, false});
     }},
    {"AdamW", kAdamW},
    {"AdaMod", [](NamedTensors p) { return make_adamod(std::move(p)); }},
    {"Lion", [](NamedTensors p) { return make_lion(std::move(p)); }},
    {"Lamb", [](NamedTensors p) { return make_lamb(std::move(p)); }},
    {"Adafactor", [](NamedTensors p) { return make_adafactor(std::move(p)); }},
};

/// The CPU stands for a device everywhere; a GPU is one where it is.
class optim_host_optimizer : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (std::string(GetParam()) == "cuda" && !at::hasCUDA()) GTEST_SKIP() << "needs a GPU";
  }
  at::Device device() const { return at::Device(GetParam()); }
};

}  // namespace

TEST_P(optim_host_optimizer, every_optimizer_steps_with_the_bits_of_one_on_the_cpu) {
  for (at::ScalarType type : {at::kFloat, at::kBFloat16, at::kHalf})
    for (const auto& [name, make] : kMakers) {
      NamedTensors away = some_parameters(type, device()), here = some_parameters(type, at::kCPU);
      auto ours = host_optimizer(away, make);
      auto plain = type == at::kFloat ? make(here) : with_master_weights(here, make);
      for (int step = 0; step < 5; ++step) {
        give_gradients(away, step, at::kBFloat16);
        give_gradients(here, step, at::kBFloat16);
        ours->step(0.01, 0.5);
        plain->step(0.01, 0.5);
      }
      EXPECT_EQ(ours->steps(), 5);
      for (size_t i = 0; i < away.size(); ++i)
        EXPECT_TRUE(away[i].second.cpu().equal(here[i].second)) << name << " " << type << " " << i;
      Collect mine, theirs;
      ours->state(mine);
      plain->state(theirs);
      ASSERT_EQ(mine.tensors.size(), theirs.tensors.size());
      for (const auto& [key, t] : theirs.tensors)
        EXPECT_TRUE(mine.tensors.at(key).equal(t)) << name << " " << key;
    }
}

// Loading a checkpoint, a broadcast, averaging.
TEST_P(optim_host_optimizer, what_others_write_to_a_float32_parameter_counts) {
  NamedTensors away = some_parameters(at::kFloat, device()),
               here = some_parameters(at::kFloat, at::kCPU);
  auto ours = host_optimizer(away, kAdamW), plain = kAdamW(here);
  for (int step = 0; step < 4; ++step) {
    give_gradients(away, step, at::kBFloat16);
    give_gradients(here, step, at::kBFloat16);
    at::NoGradGuard no_grad;
    if (step == 1)
      for (auto* all : {&away, &here}) (*all)[0].second.mul_(0.5);
    if (step == 2)
      for (auto* all : {&away, &here}) {
        at::Tensor p = (*all)[1].second;
        p.set_data(at::ones({5}, p.options()));
      }
    ours->step(0.01);
    plain->step(0.01);
  }
  for (size_t i = 0; i < away.size(); ++i)
    EXPECT_TRUE(away[i].second.cpu().equal(here[i].second)) << i;
}

TEST_P(optim_host_optimizer, all_it_keeps_is_in_host_memory_and_continues_elsewhere) {
  for (at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    NamedTensors a = some_parameters(type, device());
    auto first = host_optimizer(a, kAdamW);
    for (int i = 0; i < 3; ++i) give_gradients(a, i, at::kBFloat16), first->step(0.01);
    struct OnCpu : Collect {
      using Collect::tensor;
      void tensor(const Slice& slice, at::Tensor local) override {
        EXPECT_TRUE(local.is_cpu()) << slice.name;
        Collect::tensor(slice, local);
      }
    } saved;
    first->state(saved);
    NamedTensors b;
    for (const auto& [name, p] : a) b.emplace_back(name, p.detach().clone().requires_grad_());
    auto second = host_optimizer(b, kAdamW);
    Restore restore(saved);
    second->state(restore);
    EXPECT_EQ(second->steps(), 3);
    for (int i = 3; i < 6; ++i) {
      give_gradients(a, i, at::kBFloat16), first->step(0.01);
      give_gradients(b, i, at::kBFloat16), second->step(0.01);
    }
    for (size_t i = 0; i < a.size(); ++i) EXPECT_TRUE(a[i].second.equal(b[i].second));
  }
}

TEST_P(optim_host_optimizer,
       a_parameter_without_a_gradient_keeps_its_bits_and_zero_grad_is_theirs) {
  NamedTensors away = some_parameters(at::kFloat, device());
  auto optimizer = host_optimizer(away, kAdamW);
  give_gradients(away, 0, at::kBFloat16);
  away[1].second.mutable_grad() = at::Tensor();
  const at::Tensor before = away[1].second.detach().clone();
  optimizer->step(0.01);
  EXPECT_TRUE(away[1].second.equal(before));
  const void* place = away[0].second.grad().data_ptr();
  optimizer->zero_grad();
  EXPECT_EQ(away[0].second.grad().data_ptr(), place);
  EXPECT_EQ(away[0].second.grad().abs().sum().item<float>(), 0);
  optimizer->zero_grad(true);
  EXPECT_FALSE(away[0].second.grad().defined());
}

INSTANTIATE_TEST_SUITE_P(on, optim_host_optimizer, ::testing::Values("cpu", "cuda"),
                         [](const auto& info) { return std::string(info.param); });

TEST(optim_host_optimizer_input, what_cannot_be_stepped_is_named_and_changes_nothing) {
  auto said = [](const auto& body) -> std::string {
    try {
      body();
    } catch (const UsageError& e) {
      return e.what();
    }
    return "nothing";
  };
  const at::Tensor f = at::ones({2}), h = at::ones({2}, at::kHalf), i = at::ones({2}, at::kInt);
  EXPECT_NE(said([&] { host_optimizer({}, kAdamW); }).find("no parameters"), std::string::npos);
  EXPECT_NE(said([&] {
              host_optimizer({{"i", i}}, kAdamW);
            }).find("'i' is Int"),
            std::string::npos);
  EXPECT_NE(said([&] {
              host_optimizer({{"f", f}, {"h", h}}, kAdamW);
            }).find("'h' is Half on cpu, but 'f' is Float on cpu"),
            std::string::npos);
  at::Tensor p = at::ones({4, 2}).requires_grad_();
  auto optimizer = host_optimizer({{"p", p}}, kAdamW);
  p.mutable_grad() = at::ones({4, 2}).to_sparse();
  EXPECT_NE(said([&] { optimizer->step(0.1); }).find("the gradient of 'p' is sparse"),
            std::string::npos);
  EXPECT_TRUE(p.equal(at::ones({4, 2})));
  EXPECT_EQ(optimizer->steps(), 0);
}

}  // namespace host_optimizer_test
