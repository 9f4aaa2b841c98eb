// SPDX-License-Identifier: Apache-2.0
#include "trireme/tensor/parameter_layout.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/linear.h>

#include "trireme/base/error.h"

namespace parameter_layout_test {

using namespace trireme;

namespace {

ParameterLayout rows(int64_t whole, std::vector<std::pair<int64_t, int64_t>> parts, int64_t width) {
  ParameterLayout layout{{whole, width}, {}, {{"tp", OnAxis::split}}};
  for (const auto& [begin, length] : parts) layout.boxes.push_back({{begin, 0}, {length, width}});
  return layout;
}

// Rows 2 and 3 of a whole of 6.
struct Knows : torch::nn::Module, LaysOutParameters {
  Knows() { weight = register_parameter("weight", at::zeros({2, 3})); }
  std::optional<ParameterLayout> layout_of(const std::string& name,
                                           const at::Tensor&) const override {
    if (name == "weight") return layout;
    return std::nullopt;
  }
  at::Tensor weight;
  ParameterLayout layout = rows(6, {{2, 2}}, 3);
};

// Says of a module inside what that cannot know of itself.
struct Around : torch::nn::Module, LaysOutParameters {
  Around()
      : knows(register_module("knows", std::make_shared<Knows>())),
        plain(register_module("plain", torch::nn::Linear(3, 2))) {}
  std::optional<ParameterLayout> layout_of(const std::string& name,
                                           const at::Tensor& p) const override {
    if (name == "knows.weight") return ParameterLayout::whole({9, 9});
    if (name == "plain.bias") return ParameterLayout::whole(p.sizes().vec(), {{"tp", OnAxis::sum}});
    return std::nullopt;
  }
  std::shared_ptr<Knows> knows;
  torch::nn::Linear plain;
};

}  // namespace

TEST(tensor_parameter_layout, the_innermost_module_that_knows_decides) {
  const Around module;  // on the stack: the root has no shared_ptr of itself
  const auto layouts = layouts_of(module);
  ASSERT_EQ(layouts.size(), 3u);
  EXPECT_EQ(layouts.at("knows.weight"), module.knows->layout);
  EXPECT_EQ(layouts.at("plain.weight"), ParameterLayout::whole({2, 3}));
  EXPECT_EQ(layouts.at("plain.weight").on("tp"), OnAxis::same);
  EXPECT_EQ(layouts.at("plain.bias").on("tp"), OnAxis::sum);
  EXPECT_EQ(layouts.at("plain.bias").on("dp"), OnAxis::same);
  EXPECT_FALSE(layouts.at("knows.weight").is_whole());
  EXPECT_TRUE(layouts.at("plain.bias").is_whole());
}

TEST(tensor_parameter_layout, tied_names_have_the_layout_of_the_one_that_knows) {
  struct Sharing : torch::nn::Module {
    Sharing() : knows(register_module("knows", std::make_shared<Knows>())) {
      register_parameter("a_head", knows->weight);
    }
    std::shared_ptr<Knows> knows;
  } module;
  const auto layouts = layouts_of(module);
  EXPECT_EQ(layouts.at("a_head"), module.knows->layout);
  EXPECT_EQ(layouts.at("knows.weight"), module.knows->layout);
}

TEST(tensor_parameter_layout, one_tensor_with_two_layouts_is_refused_by_both_names) {
  struct Second : torch::nn::Module, LaysOutParameters {
    explicit Second(const at::Tensor& t) { register_parameter("weight", t); }
    std::optional<ParameterLayout> layout_of(const std::string&, const at::Tensor&) const override {
      return rows(6, {{0, 2}}, 3);
    }
  };
  struct Both : torch::nn::Module {
    Both() {
      auto first = register_module("first", std::make_shared<Knows>());
      register_module("second", std::make_shared<Second>(first->weight));
    }
  } module;
  try {
    layouts_of(module);
    FAIL();
  } catch (const UsageError& e) {
    EXPECT_STREQ(e.what(),
                 "'first.weight' and 'second.weight' are one tensor with two different layouts");
  }
}

TEST(tensor_parameter_layout, a_layout_that_does_not_fit_its_tensor_is_refused_by_name) {
  Knows module;
  module.layout = rows(6, {{2, 3}}, 3);
  try {
    layouts_of(module);
    FAIL();
  } catch (const UsageError& e) {
    EXPECT_NE(std::string(e.what()).find("parameter 'weight' is 2 × 3, and its layout says 3 × 3"),
              std::string::npos)
        << e.what();
  }
  module.layout = rows(6, {{5, 2}}, 3);
  EXPECT_THROW(layouts_of(module), UsageError);
}

TEST(tensor_parameter_layout, faults_are_told) {
  EXPECT_EQ(fault_of(rows(6, {{0, 2}, {4, 2}}, 3)), "");
  EXPECT_EQ(fault_of(rows(6, {{0, 2}, {1, 2}}, 3)), "boxes 0 and 1 overlap");
  EXPECT_EQ(fault_of(rows(6, {}, 3)), "it has no box");
  EXPECT_NE(fault_of(rows(6, {{5, 2}}, 3)), "");
  EXPECT_NE(fault_of(rows(6, {{-1, 2}}, 3)), "");
  ParameterLayout other = rows(6, {{0, 2}, {4, 2}}, 3);
  other.boxes[1].lengths[1] = 2;
  EXPECT_EQ(fault_of(other), "boxes of 2 × 3 and 2 × 2 do not follow one another in dim 0");
}

TEST(tensor_parameter_layout, parts_are_boxes_one_after_another) {
  const at::Tensor whole = at::arange(18).view({6, 3});
  const auto layout = rows(6, {{4, 2}, {1, 1}}, 3);
  EXPECT_EQ(layout.local_shape(), (std::vector<int64_t>{3, 3}));
  EXPECT_TRUE(
      part_of(whole, layout).equal(at::cat({whole.narrow(0, 4, 2), whole.narrow(0, 1, 1)})));
  EXPECT_THROW(part_of(whole.t(), layout), UsageError);
  const ParameterLayout columns{{6, 3}, {{{0, 1}, {6, 2}}}, {}};
  const at::Tensor part = part_of(whole, columns);
  EXPECT_TRUE(part.equal(whole.narrow(1, 1, 2)));
  EXPECT_TRUE(part.is_contiguous());
  part.zero_();
  EXPECT_EQ(whole[0][1].item<int64_t>(), 1) << "a copy";
  const auto slices = slices_of("w", layout);
  ASSERT_EQ(slices.size(), 2u);
  EXPECT_EQ(slices[1], (Slice{"w", {6, 3}, {1, 0}, {1, 3}}));
}

}  // namespace parameter_layout_test
