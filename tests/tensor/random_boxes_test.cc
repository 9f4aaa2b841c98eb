// SPDX-License-Identifier: Apache-2.0
#include "trireme/tensor/random/random_boxes.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "trireme/base/error.h"
#include "trireme/tensor/random/box_runs.h"
#include "trireme/tensor/random/random.h"

namespace random_boxes_test {

using namespace trireme;

namespace {

constexpr double kP = 0.3;

at::Tensor narrowed(at::Tensor t, const Box& box) {
  for (size_t d = 0; d < box.offsets.size(); ++d)
    t = t.narrow(static_cast<int64_t>(d), box.offsets[d], box.lengths[d]);
  return t;
}

// Every box of a small shape.
std::vector<Box> boxes_of_shape(const std::vector<int64_t>& shape) {
  std::vector<Box> boxes{{{}, {}}};
  for (const int64_t size : shape) {
    std::vector<Box> longer;
    for (const Box& box : boxes)
      for (int64_t begin = 0; begin < size; ++begin)
        for (int64_t end = begin; end <= size; ++end) {
          Box more = box;
          more.offsets.push_back(begin);
          more.lengths.push_back(end - begin);
          longer.push_back(std::move(more));
        }
    boxes = std::move(longer);
  }
  return boxes;
}

at::Tensor dropped(const at::Tensor& x, at::IntArrayRef whole, const Box& box) {
  const RandomScope scope({42, 3, {11, 5}});
  return keyed_dropout(x, kP, "drop", whole, box);
}
at::Tensor dropped(const at::Tensor& x) {
  const RandomScope scope({42, 3, {11, 5}});
  return keyed_dropout(x, kP, "drop");
}

}  // namespace

TEST(tensor_random_boxes, runs_visit_each_element_of_a_box_once_in_order) {
  for (const std::vector<int64_t>& shape :
       {std::vector<int64_t>{4}, {3, 4}, {2, 3, 3}, {1, 4, 1}, {2, 2, 2, 2}})
    for (const Box& box : boxes_of_shape(shape)) {
      int64_t numel = 1;
      for (const auto size : shape) numel *= size;
      const at::Tensor expected =
          narrowed(at::arange(numel).view(shape), box).contiguous().view({-1});
      std::vector<int64_t> visited;
      trireme::detail::each_run(shape, box.offsets, box.lengths,
                                [&](int64_t begin, int64_t local, int64_t count) {
                                  ASSERT_EQ(local, static_cast<int64_t>(visited.size()));
                                  ASSERT_GT(count, 0);
                                  for (int64_t i = 0; i < count; ++i) visited.push_back(begin + i);
                                });
      ASSERT_TRUE(at::tensor(visited, at::kLong).equal(expected)) << expected;
    }
}

TEST(tensor_random_boxes, parts_of_a_normal_or_uniform_tensor_have_the_bits_of_the_whole) {
  for (const auto dtype : {at::kFloat, at::kDouble, at::kBFloat16})
    for (const std::vector<int64_t>& shape :
         {std::vector<int64_t>{7, 31}, {200, 3}, {3, 5, 67}, {129}}) {
      const at::Tensor normal = at::empty(shape, dtype), uniform = at::empty(shape, dtype);
      normal_(normal, 9, 0.5, 2);
      uniform_(uniform, 9, -1, 3);
      for (size_t d = 0; d < shape.size(); ++d)
        for (int64_t parts = 1; parts <= std::min<int64_t>(shape[d], 5); ++parts)
          for (int64_t r = 0; r < parts; ++r) {
            ParameterLayout layout = ParameterLayout::whole(shape);
            layout.boxes[0].offsets[d] = shape[d] * r / parts;
            layout.boxes[0].lengths[d] = shape[d] * (r + 1) / parts - shape[d] * r / parts;
            const at::Tensor own = at::empty(layout.local_shape(), dtype);
            normal_(own, 9, 0.5, 2, layout);
            ASSERT_TRUE(own.equal(part_of(normal, layout))) << d << " " << r << " of " << parts;
            uniform_(own, 9, -1, 3, layout);
            ASSERT_TRUE(own.equal(part_of(uniform, layout))) << d << " " << r << " of " << parts;
          }
    }
}

TEST(tensor_random_boxes, several_boxes_lie_one_after_another) {
  const at::Tensor whole = at::empty({90, 5});
  normal_(whole, 4, 0, 1);
  const ParameterLayout layout{
      {90, 5}, {{{60, 0}, {7, 5}}, {{3, 0}, {11, 5}}, {{80, 0}, {1, 5}}}, {}};
  const at::Tensor own = at::empty({19, 5});
  normal_(own, 4, 0, 1, layout);
  EXPECT_TRUE(own.equal(part_of(whole, layout)));
  EXPECT_THROW(normal_(at::empty({18, 5}), 4, 0, 1, layout), UsageError);
}

TEST(tensor_random_boxes, parts_of_a_dropout_drop_what_the_whole_does) {
  for (const auto dtype : {at::kFloat, at::kDouble, at::kBFloat16})
    for (const std::vector<int64_t>& shape :
         {std::vector<int64_t>{2, 7, 24}, {2, 300}, {2, 3, 129, 2}}) {
      const at::Tensor x = at::rand(shape, dtype).add(1);
      const at::Tensor all = dropped(x);
      ASSERT_GT(all.eq(0).sum().item<int64_t>(), 0);
      for (size_t d = 1; d < shape.size(); ++d)
        for (int64_t parts = 1; parts <= std::min<int64_t>(shape[d], 4); ++parts)
          for (int64_t r = 0; r < parts; ++r) {
            Box box = Box::whole(shape);
            box.offsets[d] = shape[d] * r / parts;
            box.lengths[d] = shape[d] * (r + 1) / parts - shape[d] * r / parts;
            at::Tensor part = narrowed(x, box).clone().requires_grad_(true);
            const at::Tensor y = dropped(part, shape, box);
            ASSERT_TRUE(y.equal(narrowed(all, box))) << d << " " << r << " of " << parts;
            y.sum().backward();
            ASSERT_TRUE(part.grad().eq(0).equal(y.eq(0))) << "the same mask in backward";
          }
    }
}

TEST(tensor_random_boxes, a_box_that_is_not_the_tensors_is_refused) {
  const at::Tensor x = at::ones({2, 3, 4});
  EXPECT_THROW(dropped(x, {2, 6, 4}, Box{{0, 0, 0}, {2, 2, 4}}), UsageError);
  EXPECT_THROW(dropped(x, {2, 6, 4}, Box{{0, 4, 0}, {2, 3, 4}}), UsageError);
  EXPECT_THROW(dropped(x, {4, 3, 4}, Box{{2, 0, 0}, {2, 3, 4}}), UsageError) << "all samples";
  EXPECT_NO_THROW(dropped(x, {2, 6, 4}, Box{{0, 3, 0}, {2, 3, 4}}));
}

}  // namespace random_boxes_test
