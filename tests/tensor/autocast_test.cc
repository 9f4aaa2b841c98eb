// SPDX-License-Identifier: Apache-2.0
#include "trireme/tensor/autocast.h"

#include <ATen/autocast_mode.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/linear.h>
#include <torch/types.h>

#include <thread>

#include "trireme/base/error.h"
#include "trireme/tensor/autocast_compat.h"

namespace autocast_test {

using namespace trireme;

namespace {

std::string refused(at::DeviceType device, at::ScalarType dtype) {
  const auto before = AutocastState::current();
  std::string text;
  try {
    AutocastGuard guard(device, dtype);
  } catch (const UsageError& e) {
    text = e.what();
  }
  EXPECT_EQ(AutocastState::current(), before);
  return text;
}

at::ScalarType product_type() {
  auto a = torch::ones({2, 2});
  return at::mm(a, a).scalar_type();
}

}  // namespace

TEST(tensor_autocast, computes_in_bfloat16_inside_and_restores_what_was_there) {
  const auto before = AutocastState::current();
  EXPECT_EQ(product_type(), at::kFloat);
  {
    AutocastGuard outer(at::kCPU, at::kBFloat16);
    EXPECT_EQ(product_type(), at::kBFloat16);
    const auto within = AutocastState::current();
    {
      AutocastGuard off(at::kCPU, std::nullopt, false);
      EXPECT_EQ(product_type(), at::kFloat);
      EXPECT_FALSE(AutocastState::current().cache);
      {
        AutocastGuard again(at::kCPU, at::kBFloat16);
        EXPECT_EQ(product_type(), at::kBFloat16);
      }
      EXPECT_EQ(product_type(), at::kFloat);
    }
    EXPECT_EQ(AutocastState::current(), within);
    EXPECT_EQ(product_type(), at::kBFloat16);
  }
  EXPECT_EQ(AutocastState::current(), before);
  EXPECT_EQ(product_type(), at::kFloat);
}

TEST(tensor_autocast, restores_when_the_forward_throws) {
  const auto before = AutocastState::current();
  try {
    AutocastGuard guard(at::kCPU, at::kBFloat16);
    throw std::runtime_error("in forward");
  } catch (const std::runtime_error&) {
  }
  EXPECT_EQ(AutocastState::current(), before);
  EXPECT_EQ(at::autocast::increment_nesting(), 1);
  EXPECT_EQ(at::autocast::decrement_nesting(), 0);
}

TEST(tensor_autocast, parameters_get_float32_gradients) {
  torch::nn::Linear layer(4, 3);
  auto x = torch::randn({5, 4});
  at::Tensor loss;
  {
    AutocastGuard guard(at::kCPU, at::kBFloat16);
    auto y = layer->forward(x);
    EXPECT_EQ(y.scalar_type(), at::kBFloat16);
    loss = y.to(at::kFloat).sum();
  }
  loss.backward();
  EXPECT_EQ(layer->weight.grad().scalar_type(), at::kFloat);
  EXPECT_TRUE(layer->weight.grad().allclose(x.sum(0).expand({3, 4}), 2e-2, 2e-2));
}

// The cache holds the weight as it was cast first; a guard that did not clear it would compute with
// the weights of the step before.
TEST(tensor_autocast, the_end_of_the_outermost_guard_forgets_the_cast_weights) {
  auto w = torch::ones({2, 2}).requires_grad_();
  auto x = torch::ones({2, 2});
  auto product = [&] { return at::mm(x, w)[0][0].to(at::kFloat).item<float>(); };
  {
    AutocastGuard outer(at::kCPU, at::kBFloat16);
    EXPECT_EQ(product(), 2);
    {
      torch::NoGradGuard no_grad;
      w.mul_(8);
    }
    {
      AutocastGuard inner(at::kCPU, at::kBFloat16);
      EXPECT_EQ(product(), 2);  // the cache at work
    }
    EXPECT_EQ(product(), 2);
    {
      AutocastGuard uncached(at::kCPU, at::kBFloat16, false);
      EXPECT_EQ(product(), 16);
    }
  }
  AutocastGuard next(at::kCPU, at::kBFloat16);
  EXPECT_EQ(product(), 16);
}

TEST(tensor_autocast, is_the_state_of_one_thread) {
  AutocastGuard guard(at::kCPU, at::kBFloat16);
  std::thread([] { EXPECT_EQ(product_type(), at::kFloat); }).join();
  const auto here = AutocastState::current();
  std::thread([&] {
    AutocastGuard same(here);
    EXPECT_EQ(AutocastState::current(), here);
    EXPECT_EQ(product_type(), at::kBFloat16);
  }).join();
}

TEST(tensor_autocast, the_state_of_a_gpu_is_set_and_read_too) {
  const auto before = AutocastState::current();
  AutocastState wanted = before;
  wanted.of(at::kCUDA) = {true, at::kHalf};
  {
    AutocastGuard guard(wanted);
    EXPECT_EQ(AutocastState::current(), wanted);
    AutocastGuard cpu(at::kCPU, at::kBFloat16);
    EXPECT_EQ(AutocastState::current().of(at::kCUDA), wanted.of(at::kCUDA));
    AutocastGuard off(at::kCUDA, std::nullopt);
    EXPECT_FALSE(AutocastState::current().of(at::kCUDA).enabled);
    EXPECT_TRUE(AutocastState::current().of(at::kCPU).enabled);
  }
  EXPECT_EQ(AutocastState::current(), before);
}

TEST(tensor_autocast, what_this_machine_cannot_do_is_refused_with_the_reason) {
  EXPECT_NE(refused(at::kCPU, at::kFloat).find("the dtype is Float"), std::string::npos);
  EXPECT_NE(refused(at::kMeta, at::kBFloat16).find("the device is META"), std::string::npos)
      << refused(at::kMeta, at::kBFloat16);
  EXPECT_EQ(refused(at::kCPU, at::kBFloat16), "");
  // No library has added a device to this program.
  EXPECT_FALSE(has_autocast(at::kPrivateUse1));
  EXPECT_NE(refused(at::kPrivateUse1, at::kBFloat16).find("privateuseone"), std::string::npos);
  if (!at::hasCUDA()) {
    EXPECT_NE(refused(at::kCUDA, at::kHalf).find("sees no CUDA device"), std::string::npos);
  } else {
    EXPECT_EQ(refused(at::kCUDA, at::kHalf), "");
  }
}

TEST(tensor_autocast, float16_on_a_cpu_is_refused_by_what_the_kernels_say) {
  const std::string& lacks = trireme::detail::cpu_half_lacks();
  const auto half = torch::ones({2, 2}, at::kHalf);
  bool can_multiply = true;
  try {
    at::mm(half, half);
  } catch (const c10::Error&) {
    can_multiply = false;
  }
  EXPECT_EQ(lacks.find("mm") == std::string::npos, can_multiply) << lacks;
  const std::string text = refused(at::kCPU, at::kHalf);
  EXPECT_EQ(text.empty(), lacks.empty());
  if (!lacks.empty()) {
    EXPECT_NE(text.find(lacks), std::string::npos) << text;
    EXPECT_NE(text.find(TORCH_VERSION), std::string::npos) << text;
  }
  // Asked first inside a region it must not take that region's dtype for an answer.
  AutocastGuard guard(at::kCPU, at::kBFloat16);
  EXPECT_EQ(refused(at::kCPU, at::kHalf), text);
#if !TRIREME_TORCH_AT_LEAST(2, 0)
  EXPECT_EQ(lacks, "mm, conv2d, layer_norm");
#endif
}

}  // namespace autocast_test
