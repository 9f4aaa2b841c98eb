// SPDX-License-Identifier: Apache-2.0
#include "trireme/checkpoint/steps/compare_tensors.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/checkpoint/steps/written_step.h"

namespace trireme::test::compare_tensors_test {
namespace {

using Index = std::vector<int64_t>;

TensorComparison compare(const WrittenTensor& a, const WrittenTensor& b, double tolerance = 0) {
  PrivateFolder run;
  StepReader x(write_test_step(run / "a", 1, {a})), y(write_test_step(run / "b", 2, {b}));
  return compare_tensors(x, y, a.name, tolerance);
}

template <class T>
TensorComparison compare_lists(const std::string& dtype, const std::vector<T>& a,
                               const std::vector<T>& b, double tolerance = 0) {
  const Index shape{static_cast<int64_t>(a.size())};
  return compare({"model.w", dtype, shape, bytes_of_list(a)},
                 {"model.w", dtype, shape, bytes_of_list(b)}, tolerance);
}

// 4.6 MiB: more than a window.
WrittenTensor large(std::vector<Box> boxes) {
  return {"model.w", "F32", {1200, 1000}, counted(1'200'000), std::move(boxes)};
}

TEST(checkpoint_steps_compare, the_parts_that_a_tensor_lies_in_do_not_matter) {
  const std::vector<std::vector<Box>> layouts{
      {},
      {{{0, 0}, {700, 1000}}, {{700, 0}, {500, 1000}}},
      {{{0, 0}, {1200, 1}}, {{0, 1}, {1200, 998}}, {{0, 999}, {1200, 1}}},
      {{{0, 0}, {600, 400}}, {{0, 400}, {600, 600}}, {{600, 0}, {600, 1000}}}};
  for (const auto& layout : layouts) {
    const auto found = compare(large(layout), large(layouts[2]));
    EXPECT_EQ(found.differing, 0);
    EXPECT_TRUE(found.within);
    EXPECT_EQ(found.first, Index{});
  }
}

TEST(checkpoint_steps_compare, what_differs_is_counted_measured_and_placed) {
  WrittenTensor a = large({{{0, 0}, {1200, 1}}, {{0, 1}, {1200, 999}}}), b = large({});
  const auto set = [&](int64_t row, int64_t column, float value) {
    std::memcpy(b.bytes.data() + (row * 1000 + column) * 4, &value, 4);
  };
  set(3, 7, 3007.5);
  set(1199, 999, 1'199'997);
  auto found = compare(a, b);
  EXPECT_EQ(found.differing, 2);
  EXPECT_EQ(found.largest, 2);
  EXPECT_EQ(found.first, (Index{3, 7}));
  EXPECT_FALSE(found.within);
  found = compare(a, b, 1);
  EXPECT_EQ(found.first, (Index{1199, 999}));
  EXPECT_FALSE(found.within);
  found = compare(a, b, 2);
  EXPECT_TRUE(found.within);
  EXPECT_EQ(found.first, (Index{3, 7}));
}

TEST(checkpoint_steps_compare, each_dtype_has_its_distance) {
  const int64_t least = std::numeric_limits<int64_t>::min(), most = ~least;
  EXPECT_EQ(compare_lists<double>("F64", {1, 2}, {1, 2.25}).largest, 0.25);
  EXPECT_EQ(compare_lists<uint16_t>("F16", {0x3c00}, {0xbc00}).largest, 2);        // 1, -1
  EXPECT_EQ(compare_lists<uint16_t>("F16", {0x0001}, {0x0000}).largest, 0x1p-24);  // denormal
  EXPECT_EQ(compare_lists<uint16_t>("BF16", {0x3f80}, {0x4040}).largest, 2);       // 1, 3
  EXPECT_EQ(compare_lists<int64_t>("I64", {least}, {most}).largest, 0x1p64);
  EXPECT_EQ(compare_lists<int32_t>("I32", {-5}, {5}).largest, 10);
  EXPECT_EQ(compare_lists<int16_t>("I16", {-32768}, {32767}).largest, 65535);
  EXPECT_EQ(compare_lists<int8_t>("I8", {-1}, {1}).largest, 2);
  EXPECT_EQ(compare_lists<uint8_t>("U8", {0}, {255}).largest, 255);
  EXPECT_EQ(compare_lists<uint8_t>("BOOL", {0}, {1}).largest, 1);
}

TEST(checkpoint_steps_compare, not_a_number_is_near_nothing_and_zeros_of_two_signs_are_near) {
  const float nan = std::numeric_limits<float>::quiet_NaN(), infinite = INFINITY;
  EXPECT_EQ(compare_lists<float>("F32", {nan}, {nan}).differing, 0);
  const auto found = compare_lists<float>("F32", {nan, 1}, {1, 9}, 100);
  EXPECT_TRUE(std::isnan(found.largest));
  EXPECT_FALSE(found.within);
  EXPECT_EQ(compare_lists<float>("F32", {infinite}, {1}).largest, infinite);
  const auto zeros = compare_lists<float>("F32", {0.f}, {-0.f});
  EXPECT_EQ(zeros.differing, 1);
  EXPECT_EQ(zeros.largest, 0);
}

TEST(checkpoint_steps_compare, version_2_may_have_lost_a_shape) {
  CheckpointIndex now, old;
  old.version = 2;
  EXPECT_TRUE(shapes_fit(old, {6}, now, {2, 3}));
  EXPECT_TRUE(shapes_fit(now, {2, 3}, old, {6}));
  EXPECT_FALSE(shapes_fit(old, {7}, now, {2, 3}));
  EXPECT_FALSE(shapes_fit(now, {6}, now, {2, 3}));
  EXPECT_FALSE(shapes_fit(old, {3, 2}, now, {2, 3}));
}

}  // namespace
}  // namespace trireme::test::compare_tensors_test
