// SPDX-License-Identifier: Apache-2.0
#include "trireme/tensor/random/random.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <thread>

#include "trireme/base/error.h"
#include "trireme/base/philox.h"

namespace random_test {

using namespace trireme;

namespace {

constexpr double kP = 0.1;

RandomContext context(std::vector<int64_t> samples, int64_t step = 3, uint64_t seed = 42) {
  return {seed, step, std::move(samples)};
}

at::Tensor dropped(const at::Tensor& x, std::vector<int64_t> samples, double p = kP,
                   std::string_view name = "drop") {
  RandomScope scope(context(std::move(samples)));
  return keyed_dropout(x, p, name);
}

// The definition, number by number, as random_kernels.h words it.
bool is_dropped(uint64_t key, int64_t element, int64_t threshold) {
  const int64_t group = element / 128, in_group = element % 128;
  const int64_t half = in_group / 64, in_half = in_group % 64;
  const auto block = philox_block(key, 0, static_cast<uint64_t>(16 * group + in_half / 4));
  const auto word = block[static_cast<size_t>(2 * half + in_half % 4 / 2)];
  return static_cast<int64_t>(in_half % 2 ? word >> 16 : word & 0xFFFF) < threshold;
}

}  // namespace

TEST(tensor_random, uniform_takes_word_i_mod_4_of_block_i_div_4) {
  auto t = at::empty({7, 31});
  uniform_(t, 99, -2, 3);
  const auto* p = t.data_ptr<float>();
  for (int64_t i = 0; i < t.numel(); ++i) {
    const float u =
        uniform01(philox_block(99, 0, static_cast<uint64_t>(i / 4))[static_cast<size_t>(i % 4)]);
    ASSERT_NEAR(p[i], -2 + 5 * u, 1e-6) << i;
  }
}

TEST(tensor_random, uniform_fills_its_range_evenly) {
  for (auto dtype : {at::kFloat, at::kDouble}) {
    auto t = at::empty({100000}, at::dtype(dtype));
    uniform_(t, 5, 10, 12);
    EXPECT_GE(t.min().item<double>(), 10.0);
    EXPECT_LE(t.max().item<double>(), 12.0);
    EXPECT_NEAR(t.mean().item<double>(), 11.0, 0.01);
    EXPECT_NEAR(t.var().item<double>(), 4.0 / 12, 0.01);
  }
}

TEST(tensor_random, normal_has_its_moments_and_tails) {
  auto t = at::empty({200001});
  normal_(t, 7, 1.5, 2);
  auto z = t.sub(1.5).div(2);
  EXPECT_NEAR(z.mean().item<double>(), 0, 0.01);
  EXPECT_NEAR(z.pow(2).mean().item<double>(), 1, 0.02);
  EXPECT_NEAR(z.pow(3).mean().item<double>(), 0, 0.05);
  EXPECT_NEAR(z.pow(4).mean().item<double>(), 3, 0.15);
  EXPECT_NEAR(z.abs().gt(1.96).to(at::kFloat).mean().item<double>(), 0.05, 0.004);
  EXPECT_TRUE(z.isfinite().all().item<bool>());
}

TEST(tensor_random, an_element_does_not_depend_on_size_layout_or_dtype) {
  auto small = at::empty({10}), large = at::empty({1000});
  normal_(small, 1, 0, 1);
  normal_(large, 1, 0, 1);
  EXPECT_TRUE(small.equal(large.narrow(0, 0, 10)));

  auto turned = at::zeros({25, 40}).t();  // [40, 25], not contiguous
  normal_(turned, 1, 0, 1);
  EXPECT_TRUE(turned.reshape({-1}).equal(large));

  auto half = at::empty({1000}, at::dtype(at::kBFloat16));
  normal_(half, 1, 0, 1);
  EXPECT_TRUE(half.equal(large.to(at::kBFloat16)));
}

TEST(tensor_random, keys_name_different_streams) {
  auto a = at::empty({64}), b = at::empty({64});
  uniform_(a, 1, 0, 1);
  uniform_(b, 2, 0, 1);
  EXPECT_FALSE(a.equal(b));
}

TEST(tensor_random, integers_are_refused) {
  EXPECT_THROW(uniform_(at::zeros({3}, at::dtype(at::kLong)), 1, 0, 1), UsageError);
  EXPECT_THROW(normal_(at::Tensor(), 1, 0, 1), UsageError);
}

TEST(tensor_random, dropout_follows_its_definition_for_every_width) {
  const auto threshold = std::llround(kP * 65536);
  const float scale = static_cast<float>(65536.0 / static_cast<double>(65536 - threshold));
  for (int64_t width : {1, 3, 63, 64, 65, 127, 128, 129, 300}) {
    auto x = at::arange(1, 2 * width + 1, at::kFloat).view({2, width});
    auto y = dropped(x, {11, 5});
    for (int64_t r = 0; r < 2; ++r) {
      const uint64_t key = stable_hash({42, stable_hash("drop"), 0, 3, r == 0 ? 11u : 5u});
      for (int64_t i = 0; i < width; ++i) {
        const float in = x[r][i].item<float>();
        ASSERT_EQ(y[r][i].item<float>(), is_dropped(key, i, threshold) ? 0 : in * scale)
            << width << " " << i;
      }
    }
  }
}

TEST(tensor_random, dropout_drops_the_share_it_is_asked_for) {
  auto x = at::ones({4, 50000});
  for (double p : {0.05, 0.1, 0.5, 0.9}) {
    auto y = dropped(x, {0, 1, 2, 3}, p);
    EXPECT_NEAR(y.eq(0).to(at::kFloat).mean().item<double>(), p, 0.004);
    EXPECT_NEAR(y.mean().item<double>(), 1, 0.02);
  }
}

TEST(tensor_random, a_sample_gets_the_same_mask_in_any_micro_batch) {
  auto x = at::ones({4, 5, 37});
  auto all = dropped(x, {8, 9, 10, 11});
  EXPECT_TRUE(dropped(x.narrow(0, 2, 2), {10, 11}).equal(all.narrow(0, 2, 2)));
  EXPECT_TRUE(dropped(x.narrow(0, 1, 1), {9}).equal(all.narrow(0, 1, 1)));
}

TEST(tensor_random, each_part_of_the_key_changes_the_mask) {
  auto x = at::ones({1, 256});
  auto base = dropped(x, {1}, 0.5);
  EXPECT_FALSE(dropped(x, {2}, 0.5).equal(base));
  EXPECT_FALSE(dropped(x, {1}, 0.5, "other").equal(base));
  {
    RandomScope scope(context({1}));
    EXPECT_TRUE(keyed_dropout(x, 0.5, "drop").equal(base));
    EXPECT_FALSE(keyed_dropout(x, 0.5, "drop").equal(base)) << "the second call of the forward";
  }
  RandomScope later(context({1}, 4));
  EXPECT_FALSE(keyed_dropout(x, 0.5, "drop").equal(base)) << "another step";
  RandomScope seeded(context({1}, 3, 43));
  EXPECT_FALSE(keyed_dropout(x, 0.5, "drop").equal(base)) << "another seed";
}

TEST(tensor_random, backward_uses_the_mask_of_forward) {
  for (auto dtype : {at::kFloat, at::kDouble, at::kBFloat16}) {
    auto x = at::ones({3, 200}, at::dtype(dtype)).set_requires_grad(true);
    auto y = dropped(x, {1, 2, 3}, 0.5);
    y.backward(at::ones_like(y));  // outside the scope
    EXPECT_TRUE(x.grad().equal(y.detach())) << dtype;
    EXPECT_GT(y.eq(0).sum().item<int64_t>(), 0);
  }
}

TEST(tensor_random, every_dtype_drops_the_same_elements) {
  auto x = at::ones({2, 130});
  auto mask = dropped(x, {1, 2}, 0.3).eq(0);
  EXPECT_TRUE(dropped(x.to(at::kDouble), {1, 2}, 0.3).eq(0).equal(mask));
  EXPECT_TRUE(dropped(x.to(at::kHalf), {1, 2}, 0.3).eq(0).equal(mask));
}

TEST(tensor_random, dropout_of_0_is_the_tensor_and_of_1_is_zero) {
  auto x = at::ones({1, 8});
  EXPECT_TRUE(dropped(x, {1}, 0).is_same(x));
  EXPECT_TRUE(dropped(x, {1}, 1).eq(0).all().item<bool>());
}

TEST(tensor_random, dropout_refuses_what_it_cannot_key) {
  auto x = at::ones({2, 8});
  EXPECT_THROW(keyed_dropout(x, 0.1, "drop"), UsageError) << "no scope";
  EXPECT_THROW(dropped(x, {1, 2, 3}), UsageError) << "rows and samples differ";
  EXPECT_THROW(dropped(x, {1, 2}, 1.5), UsageError);
  EXPECT_THROW(dropped(x, {1, 2}, std::nan("")), UsageError);
  EXPECT_THROW(dropped(x.to(at::kLong), {1, 2}), UsageError);
}

TEST(tensor_random, scopes_nest_and_belong_to_their_thread) {
  EXPECT_EQ(RandomScope::current(), nullptr);
  RandomScope outer(context({1}));
  EXPECT_EQ(RandomScope::next_call(7), 0);
  {
    RandomScope inner(context({2}));
    EXPECT_EQ(RandomScope::current()->samples[0], 2);
    EXPECT_EQ(RandomScope::next_call(7), 0);
  }
  EXPECT_EQ(RandomScope::current()->samples[0], 1);
  EXPECT_EQ(RandomScope::next_call(7), 1);
  EXPECT_EQ(RandomScope::next_call(8), 0);
  bool seen = true;
  std::thread([&] { seen = RandomScope::current() != nullptr; }).join();
  EXPECT_FALSE(seen);
}

TEST(tensor_random, the_default_generator_can_be_re_seeded) {
  seed_default_generator(5);
  auto a = at::rand({8});
  seed_default_generator(5);
  EXPECT_TRUE(at::rand({8}).equal(a));
  seed_default_generator(6);
  EXPECT_FALSE(at::rand({8}).equal(a));
}

}  // namespace random_test
