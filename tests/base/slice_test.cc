// SPDX-License-Identifier: Apache-2.0
#include "trireme/base/slice.h"

#include <gtest/gtest.h>

#include <random>

namespace trireme::slice_test {
namespace {

using Sizes = std::vector<int64_t>;

// The flat indices, in the whole tensor, of a box's elements in order.
Sizes elements_of(const Sizes& shape, const Sizes& offsets, const Sizes& lengths) {
  Sizes found{0};
  for (size_t d = 0; d < shape.size(); ++d) {
    Sizes next;
    for (int64_t row : found)
      for (int64_t i = 0; i < lengths[d]; ++i) next.push_back(row * shape[d] + offsets[d] + i);
    found = std::move(next);
  }
  return found;
}

Sizes shape_from(std::mt19937& random) {
  Sizes shape(random() % 5);
  for (int64_t& n : shape) n = 1 + static_cast<int64_t>(random() % 4);
  return shape;
}

}  // namespace

TEST(base_slice, a_flat_range_is_boxes_that_lie_behind_each_other) {
  std::mt19937 random(1);
  for (int round = 0; round < 3000; ++round) {
    Slice s = Slice::whole("x", shape_from(random));
    for (size_t d = 0; d < s.lengths.size(); ++d) {
      s.offsets[d] = static_cast<int64_t>(random() % static_cast<uint64_t>(s.global_shape[d]));
      s.lengths[d] = 1 + static_cast<int64_t>(
                             random() % static_cast<uint64_t>(s.global_shape[d] - s.offsets[d]));
    }
    const auto box = static_cast<uint64_t>(s.box_numel());
    const auto begin = static_cast<int64_t>(random() % (box + 1));
    const auto count = static_cast<int64_t>(random() % (box - static_cast<uint64_t>(begin) + 1));
    s.flat = FlatRange{begin, count};
    ASSERT_EQ(fault_of(s), "");
    const Sizes all = elements_of(s.global_shape, s.offsets, s.lengths);
    const Sizes wanted(all.begin() + begin, all.begin() + begin + count);
    Sizes got;
    const auto boxes = boxes_of(s);
    EXPECT_LE(boxes.size(), s.lengths.empty() ? 1 : 2 * s.lengths.size() - 1);
    for (const PlacedBox& b : boxes) {
      EXPECT_EQ(b.at, static_cast<int64_t>(got.size()));
      const Sizes part = elements_of(s.global_shape, b.offsets, b.lengths);
      got.insert(got.end(), part.begin(), part.end());
    }
    ASSERT_EQ(got, wanted);
  }
}

TEST(base_slice, a_plain_box_is_one_box) {
  const Slice s{"x", {4, 6}, {1, 2}, {2, 3}};
  EXPECT_EQ(boxes_of(s), (std::vector<PlacedBox>{{{1, 2}, {2, 3}, 0}}));
  EXPECT_EQ(boxes_of(Slice::whole("x", {})), (std::vector<PlacedBox>{{{}, {}, 0}}));
  EXPECT_TRUE(boxes_of(Slice::whole("x", {3, 0})).empty());
}

TEST(base_slice, a_range_of_everything_is_the_whole) {
  EXPECT_EQ(Slice::range("x", {2, 3}, 0, 6), Slice::whole("x", {2, 3}));
  EXPECT_FALSE(Slice::range("x", {2, 3}, 1, 5).is_whole());
  EXPECT_EQ(Slice::range("x", {2, 3}, 1, 5).local_shape(), (Sizes{5}));
}

TEST(base_slice, what_is_wrong_with_a_slice_is_said) {
  auto says = [](const Slice& s, const std::string& text) {
    EXPECT_NE(fault_of(s).find(text), std::string::npos) << fault_of(s);
  };
  says({"x", {4}, {}, {4}}, "0 offsets and 1 lengths for 1 dims");
  says({"x", {4}, {3}, {2}}, "do not fit into the size 4 of dim 0");
  says({"x", {4}, {-1}, {2}}, "do not fit");
  says({"x", {4}, {0}, {INT64_MAX}}, "do not fit");
  says({"x", {INT64_MAX, 3}, {0, 0}, {1, 1}}, "2^63");
  says({"x", {4}, {0}, {4}, FlatRange{2, 3}}, "elements 2 to 4 of a box of 4");
}

}  // namespace trireme::slice_test
