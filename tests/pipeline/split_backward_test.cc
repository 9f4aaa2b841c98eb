// SPDX-License-Identifier: Apache-2.0
#include "trireme/pipeline/split_backward.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "tests/pipeline/count_products.h"
#include "trireme/base/error.h"

namespace trireme::testing::split_backward_test {
namespace {

using Tensors = std::vector<at::Tensor>;
using Forward = std::function<Tensors(const Tensors&)>;

Tensors copies_of(const Tensors& list) {
  Tensors copies;
  for (const at::Tensor& t : list)
    copies.push_back(t.detach().clone().set_requires_grad(t.requires_grad()));
  return copies;
}

Tensors gradients_of(const Tensors& list) {
  Tensors all;
  for (const at::Tensor& t : list) all.push_back(t.grad());
  return all;
}

void expect_same(const Tensors& a, const Tensors& b) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    ASSERT_EQ(a[i].defined(), b[i].defined()) << i;
    if (a[i].defined()) {
      EXPECT_TRUE(at::equal(a[i], b[i])) << i;
    }
  }
}

/// `forward` of inputs and then parameters: the halves against one backward, bit for bit.
void expect_halves_make_a_whole(const Forward& forward, const Tensors& inputs,
                                const Tensors& parameters) {
  torch::manual_seed(7);
  auto run = [&](auto&& backward) {
    const Tensors in = copies_of(inputs), weights = copies_of(parameters);
    Tensors all = in;
    all.insert(all.end(), weights.begin(), weights.end());
    return backward(forward(all), in, weights);
  };
  Tensors outer;
  const auto whole = run([&](const Tensors& out, const Tensors& in, const Tensors& weights) {
    for (const at::Tensor& t : out) outer.push_back(torch::randn_like(t));
    Tensors trained, gradients;
    for (size_t i = 0; i < out.size(); ++i)
      if (out[i].requires_grad()) trained.push_back(out[i]), gradients.push_back(outer[i]);
    torch::autograd::backward(trained, gradients);
    return std::pair(gradients_of(in), gradients_of(weights));
  });
  const auto halves = run([&](const Tensors& out, const Tensors& in, const Tensors& weights) {
    SplitBackward split(out, in);
    Tensors of_inputs = split.input_gradients(outer);
    split.weight_gradients();
    return std::pair(of_inputs, gradients_of(weights));
  });
  expect_same(whole.first, halves.first);
  expect_same(whole.second, halves.second);
}

at::Tensor leaf(at::IntArrayRef sizes) { return torch::randn(sizes).requires_grad_(); }

TEST(pipeline_split_backward, halves_of_an_mlp_are_one_backward) {
  expect_halves_make_a_whole(
      [](const Tensors& t) -> Tensors {
        return {at::linear(at::linear(t[0], t[1], t[2]).relu(), t[3], t[4])};
      },
      {leaf({4, 8})}, {leaf({16, 8}), leaf({16}), leaf({3, 16}), leaf({3})});
}

TEST(pipeline_split_backward, halves_of_a_transformer_block_are_one_backward) {
  expect_halves_make_a_whole(
      [](const Tensors& t) -> Tensors {
        const at::Tensor x = at::layer_norm(t[0], {8}, t[1], t[2]);
        const auto qkv = at::linear(x, t[3]).chunk(3, -1);
        const at::Tensor y =
            t[0] +
            at::linear(at::softmax(qkv[0].matmul(qkv[1].transpose(1, 2)), -1).matmul(qkv[2]), t[4]);
        return {y + at::linear(at::gelu(at::linear(y, t[5])), t[6])};
      },
      {leaf({2, 5, 8})},
      {leaf({8}), leaf({8}), leaf({24, 8}), leaf({8, 8}), leaf({32, 8}), leaf({8, 32})});
}

TEST(pipeline_split_backward, halves_of_a_convolution_and_batch_norm_are_one_backward) {
  expect_halves_make_a_whole(
      [](const Tensors& t) -> Tensors {
        return {
            at::batch_norm(at::conv2d(t[0], t[1], t[2]), t[3], t[4], {}, {}, true, 0.1, 1e-5, false)
                .relu()
                .sum({2, 3})};
      },
      {leaf({2, 3, 6, 6})}, {leaf({4, 3, 3, 3}), leaf({4}), leaf({4}), leaf({4})});
}

TEST(pipeline_split_backward, a_weight_that_is_used_twice_gets_both_gradients) {
  expect_halves_make_a_whole(
      [](const Tensors& t) -> Tensors { return {at::linear(at::linear(t[0], t[1]).tanh(), t[1])}; },
      {leaf({4, 8})}, {leaf({8, 8})});
}

TEST(pipeline_split_backward, outputs_that_need_no_input_still_train_their_weights) {
  expect_halves_make_a_whole(
      [](const Tensors& t) -> Tensors {
        return {at::linear(t[0], t[1]), t[2] * 3};
      },
      {leaf({4, 8})}, {leaf({8, 8}), leaf({5})});
}

TEST(pipeline_split_backward, an_input_that_is_not_used_has_no_gradient) {
  expect_halves_make_a_whole([](const Tensors& t) -> Tensors { return {at::linear(t[0], t[2])}; },
                             {leaf({4, 8}), leaf({2})}, {leaf({8, 8})});
}

TEST(pipeline_split_backward, an_input_may_be_an_output) {
  expect_halves_make_a_whole(
      [](const Tensors& t) -> Tensors {
        return {t[0], at::linear(t[0], t[1])};
      },
      {leaf({4, 8})}, {leaf({8, 8})});
}

TEST(pipeline_split_backward, inputs_without_gradients_leave_everything_to_the_second_half) {
  expect_halves_make_a_whole([](const Tensors& t) -> Tensors { return {at::linear(t[0], t[1])}; },
                             {torch::randn({4, 8})}, {leaf({8, 8})});
}

TEST(pipeline_split_backward, two_inputs_and_two_outputs) {
  expect_halves_make_a_whole(
      [](const Tensors& t) -> Tensors {
        const at::Tensor h = at::linear(t[0], t[2]) + at::linear(t[1], t[3]);
        return {h.tanh(), h * t[4]};
      },
      {leaf({4, 8}), leaf({4, 6})}, {leaf({8, 8}), leaf({8, 6}), leaf({8})});
}

TEST(pipeline_split_backward, no_product_is_computed_twice) {
  const Tensors w{leaf({16, 8}), leaf({16, 16}), leaf({8, 16})};
  const at::Tensor x = leaf({4, 8});
  auto forward = [&](const at::Tensor& in) {
    at::Tensor y = in;
    for (const at::Tensor& t : w) y = at::linear(y, t).tanh();
    return y;
  };
  int whole = 0, first = 0, second = 0;
  {
    const at::Tensor y = forward(x);
    CountProducts count;
    y.sum().backward();
    whole = CountProducts::now();
  }
  {
    SplitBackward split({forward(x).sum()}, {x});
    CountProducts count;
    split.input_gradients({at::Tensor()});
    first = CountProducts::now();
    split.weight_gradients();
    second = CountProducts::now() - first;
  }
  EXPECT_EQ(whole, 6);
  EXPECT_EQ(first, 3);
  EXPECT_EQ(second, 3);
}

TEST(pipeline_split_backward, gradients_are_added_over_micro_batches_as_backward_adds_them) {
  const at::Tensor w = leaf({8, 8}), v = w.detach().clone().requires_grad_();
  for (int i = 0; i < 3; ++i) {
    const at::Tensor x = leaf({4, 8});
    at::linear(x, v).sum().backward();
    SplitBackward split({at::linear(x, w).sum()}, {x});
    split.input_gradients({at::Tensor()});
    split.weight_gradients();
  }
  EXPECT_TRUE(at::equal(w.grad(), v.grad()));
}

TEST(pipeline_split_backward, hooks_of_parameters_run_in_the_second_half_once) {
  const at::Tensor x = leaf({4, 8}), w = leaf({8, 8});
  int calls = 0;
  w.register_hook([&](const at::Tensor& g) {
    ++calls;
    return g * 2;
  });
  SplitBackward split({at::linear(x, w).sum()}, {x});
  split.input_gradients({at::Tensor()});
  EXPECT_EQ(calls, 0);
  EXPECT_FALSE(w.grad().defined());
  split.weight_gradients();
  EXPECT_EQ(calls, 1);
  EXPECT_TRUE(at::equal(w.grad(), 2 * at::ones({8, 4}).matmul(x.detach())));
}

// A layer of which ranks hold parts calls the other ranks there: with the nodes of a graph in the
// order of their addresses, ranks added gradients of different layers.
TEST(pipeline_split_backward, the_second_half_goes_through_the_layers_as_a_backward_does) {
  struct Scale : torch::autograd::Function<Scale> {
    static at::Tensor forward(torch::autograd::AutogradContext* ctx, const at::Tensor& x,
                              const at::Tensor& w, std::vector<int>* order, int layer) {
      ctx->save_for_backward({x, w});
      ctx->saved_data["order"] = reinterpret_cast<int64_t>(order);
      ctx->saved_data["layer"] = layer;
      return x * w;
    }
    static torch::autograd::variable_list backward(torch::autograd::AutogradContext* ctx,
                                                   torch::autograd::variable_list grads) {
      const auto saved = ctx->get_saved_variables();
      at::Tensor dx, dw;
      if (ctx->needs_input_grad(0)) dx = grads[0] * saved[1];
      if (ctx->needs_input_grad(1)) {
        dw = (grads[0] * saved[0]).sum();
        reinterpret_cast<std::vector<int>*>(ctx->saved_data["order"].toInt())
            ->push_back(static_cast<int>(ctx->saved_data["layer"].toInt()));
      }
      return {dx, dw, at::Tensor(), at::Tensor()};
    }
  };
  for (int n = 2; n < 40; ++n) {
    std::vector<int> order, expected;
    const at::Tensor input = torch::ones({3}).requires_grad_(true);
    at::Tensor x = input;
    Tensors weights;
    for (int i = 0; i < n; ++i) {
      weights.push_back(torch::full({}, 1.5).requires_grad_(true));
      x = Scale::apply(x, weights.back(), &order, i);
      expected.insert(expected.begin(), i);
    }
    SplitBackward split({x}, {input});
    split.input_gradients({torch::ones({3})});
    EXPECT_TRUE(order.empty());
    split.weight_gradients();
    EXPECT_EQ(order, expected);
  }
}

TEST(pipeline_split_backward, the_graph_is_gone_after_the_second_half) {
  const at::Tensor x = leaf({4, 8}), w = leaf({8, 8});
  at::Tensor hidden = at::linear(x, w);
  const c10::weak_intrusive_ptr<c10::TensorImpl> seen(hidden.getIntrusivePtr());
  auto split = std::make_unique<SplitBackward>(Tensors{hidden.tanh().sum()}, Tensors{x});
  hidden.reset();
  split->input_gradients({at::Tensor()});
  split->weight_gradients();
  EXPECT_TRUE(seen.expired());
}

TEST(pipeline_split_backward, calls_in_another_order_are_refused) {
  const at::Tensor x = leaf({4, 8}), w = leaf({8, 8});
  SplitBackward split({at::linear(x, w).sum()}, {x});
  EXPECT_THROW(split.weight_gradients(), UsageError);
  split.input_gradients({at::Tensor()});
  EXPECT_THROW(split.input_gradients({at::Tensor()}), UsageError);
  SplitBackward frozen({x.detach()}, {x});
  EXPECT_THROW(frozen.input_gradients({at::Tensor()}), UsageError);
}

}  // namespace
}  // namespace trireme::testing::split_backward_test
