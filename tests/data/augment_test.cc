// SPDX-License-Identifier: Apache-2.0
#include "trireme/data/augment.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <numeric>
#include <set>

#include "tests/support/refusals.h"

namespace trireme::testing::augment_test {
namespace {

at::Tensor numbered(int64_t height, int64_t width) {  // 1, 2, …: 0 comes from outside
  return at::arange(1, height * width + 1, at::kFloat).view({1, 1, height, width});
}

std::vector<int64_t> ids(int64_t n) {
  std::vector<int64_t> all(static_cast<size_t>(n));
  std::iota(all.begin(), all.end(), 0);
  return all;
}

at::Tensor of(const std::vector<int64_t>& pixels, int64_t height, int64_t width) {
  return at::tensor(pixels).to(at::kFloat).view({1, 1, height, width});
}

TEST(data_augment, turns_as_torchvision_does) {
  // What torchvision 0.14's rotate(), nearest, makes of it on PyTorch 1.13.
  EXPECT_TRUE(rotate(numbered(5, 6), {30})
                  .equal(of({0,  3,  4,  11, 12, 0,  2,  3,  10, 10, 17, 18, 7,  8,  15,
                             16, 23, 24, 13, 14, 21, 21, 28, 29, 0,  19, 20, 27, 28, 0},
                            5, 6)));
  EXPECT_TRUE(rotate(numbered(5, 6), {-75})
                  .equal(of({25, 19, 13, 8, 2,  0,  26, 20, 14, 9, 3,  0,  27, 21, 15,
                             16, 10, 4,  0, 28, 22, 17, 11, 5,  0, 29, 23, 18, 12, 6},
                            5, 6)));
  const at::Tensor square = numbered(7, 7);
  EXPECT_TRUE(rotate(square, {0}).equal(square));
  EXPECT_TRUE(rotate(square, {90}).equal(square.rot90(1, {2, 3})));
  EXPECT_TRUE(rotate(square, {180}).equal(square.rot90(2, {2, 3})));
}

TEST(data_augment, what_comes_in_from_outside_is_the_fill) {
  const at::Tensor turned = rotate(numbered(5, 6), {30}, -4);
  const at::Tensor zeros = rotate(numbered(5, 6), {30});
  EXPECT_TRUE(turned.equal(zeros.masked_fill(zeros.eq(0), -4)));
  const at::Tensor cropped =
      augment(at::ones({50, 1, 4, 4}), ids(50), 0, {.crop_padding = 2, .fill = -4});
  EXPECT_EQ(cropped.min().item<float>(), -4);
  EXPECT_EQ(cropped.max().item<float>(), 1);
}

TEST(data_augment, crops_come_from_every_place_equally_often) {
  const at::Tensor image = numbered(6, 6);
  const at::Tensor padded = at::constant_pad_nd(image, {2, 2, 2, 2});
  const at::Tensor all = augment(image.expand({4000, 1, 6, 6}), ids(4000), 0, {.crop_padding = 2});
  std::vector<int> places(25);
  for (int64_t i = 0; i < all.size(0); ++i) {
    int found = 0;
    for (int64_t y = 0; y < 5; ++y)
      for (int64_t x = 0; x < 5; ++x)
        if (all[i].equal(padded[0].narrow(1, y, 6).narrow(2, x, 6)))
          ++found, ++places[static_cast<size_t>(y * 5 + x)];
    ASSERT_EQ(found, 1) << i;
  }
  for (const int count : places) EXPECT_NEAR(count, 160, 60);
}

TEST(data_augment, flips_have_their_probabilities) {
  const at::Tensor image = numbered(3, 4);
  const at::Tensor all = augment(image.expand({2000, 1, 3, 4}), ids(2000), 0,
                                 {.horizontal_flip = 0.5, .vertical_flip = 0.25});
  int neither = 0, across = 0, down = 0, both = 0;
  for (int64_t i = 0; i < all.size(0); ++i) {
    neither += all[i].equal(image[0]);
    across += all[i].equal(image[0].flip({2}));
    down += all[i].equal(image[0].flip({1}));
    both += all[i].equal(image[0].flip({1, 2}));
  }
  EXPECT_EQ(neither + across + down + both, 2000);
  EXPECT_NEAR(across + both, 1000, 100);
  EXPECT_NEAR(down + both, 500, 100);
  EXPECT_NEAR(both, 250, 80);
}

TEST(data_augment, is_a_function_of_seed_epoch_and_id_whatever_the_batch) {
  const AugmentOptions options{.crop_padding = 2, .horizontal_flip = 0.5, .degrees = 30, .seed = 9};
  const at::Tensor images = at::rand({6, 3, 8, 8});
  const at::Tensor before = images.clone();
  const at::Tensor all = augment(images, {10, 11, 12, 13, 14, 15}, 3, options);
  EXPECT_TRUE(images.equal(before));
  const auto picked = at::tensor(std::vector<int64_t>{4, 1});
  EXPECT_TRUE(augment(images.index_select(0, picked), {14, 11}, 3, options)
                  .equal(all.index_select(0, picked)));
  EXPECT_FALSE(augment(images, {10, 11, 12, 13, 14, 15}, 4, options).equal(all));
  AugmentOptions other = options;
  other.seed = 10;
  EXPECT_FALSE(augment(images, {10, 11, 12, 13, 14, 15}, 3, other).equal(all));
  EXPECT_TRUE(augment(images, {10, 11, 12, 13, 14, 15}, 3, {}).equal(images));
}

TEST(data_augment, refusals_say_what_does_not_fit) {
  const at::Tensor images = at::rand({2, 1, 4, 4});
  EXPECT_TRUE(
      has(refusal([&] { augment(images[0], {0}, 0, {}); }), "[n, channels, height, width]"));
  EXPECT_TRUE(has(refusal([&] { augment(images.to(at::kByte), {0, 1}, 0, {}); }), "float dtype"));
  EXPECT_TRUE(
      has(refusal([&] { augment(at::Tensor(), {}, 0, {}); }), "[n, channels, height, width]"));
  EXPECT_TRUE(has(refusal([&] { augment(images, {0}, 0, {}); }), "2 images and 1 samples"));
  EXPECT_TRUE(has(refusal([&] {
                    augment(images, {0, 1}, 0, {.crop_padding = -1});
                  }),
                  "crop_padding"));
  EXPECT_TRUE(has(refusal([&] {
                    augment(images, {0, 1}, 0, {.horizontal_flip = 1.5});
                  }),
                  "probabilities from 0 to 1"));
  EXPECT_TRUE(has(refusal([&] { augment(images, {0, 1}, 0, {.degrees = 200}); }), "from 0 to 180"));
  EXPECT_TRUE(has(refusal([&] { rotate(images, {1}); }), "2 images and 1 angles"));
  EXPECT_TRUE(has(refusal([&] { rotate(images, {1, INFINITY}); }), "an angle is inf"));
}

}  // namespace
}  // namespace trireme::testing::augment_test
