// SPDX-License-Identifier: Apache-2.0
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <set>
#include <string>

#include "tests/device/train_runs.h"
#include "tests/support/pretend_device/called.h"
#include "trireme/layers/causal_attention.h"
#include "trireme/tensor/attention_compat.h"
#include "trireme/train/step.h"

// Attention on a device: LibTorch's fused one where it has that (from 2.0 on), else its operators.
namespace trireme::device_attention_test {
namespace {

using Attention = at::Tensor (*)(const at::Tensor& qkv, int64_t heads, const at::Tensor& starts);

struct Seen {
  at::Tensor out, gradient;
};

Seen run(Attention attention, at::Device device) {
  const at::Tensor qkv =
      at::arange(2 * 70 * 48, at::kFloat).mul(0.61).sin().view({2, 70, 48}).to(device);
  const at::Tensor leaf = qkv.detach().requires_grad_();
  const at::Tensor out = attention(leaf, 2, {});
  const at::Tensor weights = at::arange(out.numel(), at::kFloat).cos().view(out.sizes());
  (out * weights.to(device)).sum().backward();
  return {out.detach().cpu(), leaf.grad().cpu()};
}

class Deterministic {
 public:
  Deterministic() : before_(at::globalContext().deterministicAlgorithms()) {
    at::globalContext().setDeterministicAlgorithms(true, /*warn_only=*/true);
  }
  ~Deterministic() { at::globalContext().setDeterministicAlgorithms(before_, false); }
  Deterministic(const Deterministic&) = delete;

 private:
  const bool before_;
};

}  // namespace

TEST(device_attention, is_near_the_cpus_in_values_and_gradients) {
  const Seen want = run(causal_attention, at::kCPU);
  pretend::for_some_seeds(2, [&] {
    const Seen got = run(causal_attention, pretend::device());
    EXPECT_TRUE(got.out.allclose(want.out, 1e-4, 1e-5));
    EXPECT_TRUE(got.gradient.allclose(want.gradient, 1e-4, 1e-5));
  });
}

TEST(device_attention, is_of_plain_operators_where_deterministic_algorithms_are_asked_for) {
  const Deterministic scope;
  const Seen got = run(causal_attention, pretend::device()),
             want = run(plain_causal_attention, pretend::device());
  EXPECT_TRUE(got.out.equal(want.out));
  EXPECT_TRUE(got.gradient.equal(want.gradient));
}

// What a device is given is LibTorch's own fused attention where there is one, and nothing of the
// CPU's kernels; the CPU is given those.
TEST(device_attention, is_libtorchs_fused_call_where_libtorch_has_it) {
  const auto fused = [](const std::set<std::string>& called) {
    return called.count("aten::scaled_dot_product_attention") > 0;
  };
  const auto there = pretend::called_in([] { run(causal_attention, pretend::device()); }),
             here = pretend::called_in([] { run(causal_attention, at::kCPU); });
  EXPECT_EQ(fused(there), compat::kHasFusedAttention);
  EXPECT_EQ(there.count("aten::softmax") > 0, !compat::kHasFusedAttention);
  EXPECT_FALSE(fused(here));
  EXPECT_EQ(here.count("aten::softmax"), 0u) << "on the CPU the tiles are ours";
  const Deterministic scope;
  EXPECT_FALSE(fused(pretend::called_in([] { run(causal_attention, pretend::device()); })));
}

TEST(device_attention, of_a_gpt_in_a_run_is_libtorchs_too) {
  const testing::Folders folders;
  const Config config = testing::tiny_gpt(folders.corpus, {testing::kOnDevice, "training.steps=1"});
  std::set<std::string> called;
  pretend::run_on_devices(1, [&](Group g, c10::Device) {
    trireme::Run run = build_run(config, g);
    start_data(run, config);
    called = pretend::called_in([&] { train_step(run); });
  });
  EXPECT_EQ(called.count("aten::scaled_dot_product_attention") > 0, compat::kHasFusedAttention);
  EXPECT_EQ(called.count("aten::softmax") > 0, !compat::kHasFusedAttention);
}

TEST(device_attention, of_nothing_is_nothing) {
  const at::Tensor none = at::zeros({0, 4, 12}, at::TensorOptions().device(pretend::device()));
  EXPECT_EQ(causal_attention(none, 2).sizes(), at::IntArrayRef({0, 4, 4}));
}

}  // namespace trireme::device_attention_test
