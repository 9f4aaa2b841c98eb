// SPDX-License-Identifier: Apache-2.0
#include "trireme/tensor/autocast.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/api/include/torch/version.h>

#include "tests/support/pretend_device/seeds.h"
#include "trireme/tensor/recompute/recompute.h"

// Autocast on a device that a library added to LibTorch: what it is on the CPU.
namespace trireme::device_autocast_test {
namespace {

#define TRIREME_NEEDS_AUTOCAST()                                                               \
  if (!has_autocast(at::kPrivateUse1))                                                         \
  GTEST_SKIP() << "LibTorch " << TORCH_VERSION                                                 \
               << " has autocast on the CPU and CUDA alone; from 2.4 on it has it on devices " \
                  "that libraries add, and scripts/test-on trixie runs this"

at::Tensor numbers(at::IntArrayRef sizes, double step, at::Device device) {
  return at::arange(c10::multiply_integers(sizes), at::kFloat)
      .mul(step)
      .sin()
      .view(sizes)
      .to(device)
      .requires_grad_();
}

struct Outcome {
  at::Tensor hidden, out, input_gradient, weight_gradient;
};

/// A linear layer and a softmax under autocast in bfloat16.
Outcome run(at::Device device, bool again = false) {
  const at::Tensor x = numbers({6, 8}, 0.3, device), w = numbers({5, 8}, 0.7, device);
  Outcome seen;
  const auto body = [&](const at::Tensor& t) {
    seen.hidden = at::linear(t, w);
    return at::softmax(seen.hidden, -1);
  };
  {
    AutocastGuard bf16(device.type(), at::kBFloat16);
    seen.out = again ? recompute(body, x, {w}) : body(x);
  }
  seen.out.pow(2).sum().backward();
  seen.input_gradient = x.grad().cpu();
  seen.weight_gradient = w.grad().cpu();
  seen.hidden = seen.hidden.detach().cpu();
  seen.out = seen.out.detach().cpu();
  return seen;
}

}  // namespace

TEST(device_autocast, products_are_in_bfloat16_and_sums_in_float32_with_the_cpus_numbers) {
  TRIREME_NEEDS_AUTOCAST();
  const Outcome want = run(at::kCPU);
  pretend::for_some_seeds(2, [&] {
    const Outcome got = run(pretend::device());
    EXPECT_EQ(got.hidden.scalar_type(), at::kBFloat16);
    EXPECT_EQ(got.out.scalar_type(), at::kFloat);
    EXPECT_TRUE(got.hidden.equal(want.hidden));
    EXPECT_TRUE(got.out.allclose(want.out.to(at::kFloat), 0.02, 0.02));
    EXPECT_EQ(got.weight_gradient.scalar_type(), at::kFloat);
    EXPECT_TRUE(got.weight_gradient.allclose(want.weight_gradient, 0.02, 0.02));
    EXPECT_TRUE(got.input_gradient.allclose(want.input_gradient, 0.02, 0.02));
  });
}

TEST(device_autocast, a_second_forward_computes_as_the_first_did) {
  TRIREME_NEEDS_AUTOCAST();
  const Outcome once = run(pretend::device()), again = run(pretend::device(), true);
  EXPECT_TRUE(again.out.equal(once.out));
  EXPECT_TRUE(again.weight_gradient.equal(once.weight_gradient));
}

TEST(device_autocast, a_guard_restores_what_was_and_touches_no_other_device) {
  TRIREME_NEEDS_AUTOCAST();
  const AutocastState before = AutocastState::current();
  const at::Tensor there = numbers({4, 4}, 0.3, pretend::device()),
                   here = numbers({4, 4}, 0.3, at::kCPU);
  {
    AutocastGuard bf16(at::kPrivateUse1, at::kBFloat16);
    EXPECT_EQ(at::mm(there, there).scalar_type(), at::kBFloat16);
    EXPECT_EQ(at::mm(here, here).scalar_type(), at::kFloat);
    {
      AutocastGuard off(at::kPrivateUse1, std::nullopt);
      EXPECT_EQ(at::mm(there, there).scalar_type(), at::kFloat);
    }
    EXPECT_EQ(at::mm(there, there).scalar_type(), at::kBFloat16);
  }
  EXPECT_EQ(AutocastState::current(), before);
  EXPECT_EQ(at::mm(there, there).scalar_type(), at::kFloat);
}

}  // namespace trireme::device_autocast_test
