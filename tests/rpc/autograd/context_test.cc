// SPDX-License-Identifier: Apache-2.0
// Gradients of graphs over several workers.
#include "trireme/rpc/autograd/context.h"

#include <gtest/gtest.h>

#include <functional>

#include "tests/rpc/autograd/context_workers.h"

namespace trireme::rpc_autograd_context_test {
namespace {

class rpc_autograd_context : public ContextWorkers {};

}  // namespace

// The example of torch.distributed.autograd's documentation.
TEST_F(rpc_autograd_context, the_example_of_torch_has_the_gradients_that_it_says) {
  const Tensor t1 = at::rand({3, 3}).requires_grad_(), t2 = at::rand({3, 3}).requires_grad_();
  Context context(me());
  const Tensor loss = server().sync<add_there>(t1, t2).sum();
  context.backward({loss});
  EXPECT_TRUE(at::equal(context.gradient(t1), at::ones({3, 3})));
  EXPECT_TRUE(at::equal(context.gradient(t2), at::ones({3, 3})));
  EXPECT_FALSE(t1.grad().defined()) << "gradients stay in the context";
  EXPECT_EQ(context.gradients().size(), 2u);
}

// And the one of its design notes: the result goes on here.
TEST_F(rpc_autograd_context, a_result_goes_on_in_the_graph_of_its_caller) {
  const Tensor t1 = at::rand({3, 3}).requires_grad_(), t2 = at::rand({3, 3}).requires_grad_();
  const Tensor t4 = at::rand({3, 3}).requires_grad_();
  Context context(me());
  const Tensor t3 = server().sync<add_there>(t1, t2);
  EXPECT_TRUE(t3.requires_grad());
  context.backward({(t3 * t4).sum()});
  EXPECT_TRUE(at::equal(context.gradient(t1), t4.detach()));
  EXPECT_TRUE(at::equal(context.gradient(t4), (t1 + t2).detach()));
}

TEST_F(rpc_autograd_context, each_worker_has_the_gradients_of_its_own_parameters) {
  const Tensor x = leaf({1, 1, 2});
  Context context(me());
  context.backward({server().sync<times>(x).sum()});
  EXPECT_TRUE(near(context.gradient(x), leaf({1, 2, 3})));
  EXPECT_TRUE(near(at_server(context), leaf({1, 1, 2})));
  EXPECT_FALSE(context.gradient(models[1]->weight).defined()) << "it is the server's";
}

TEST_F(rpc_autograd_context, a_graph_may_go_from_worker_to_worker_and_back) {
  const Tensor x = leaf({0.5, -1, 2});
  Context context(me());
  const Tensor y = models[0]->through(x, 4);
  context.backward({y.sum()});
  // The same in one thread.
  const size_t order[] = {0, 1, 0, 2, 0};
  std::function<Tensor(const Tensor&, size_t)> go = [&](const Tensor& in, size_t i) {
    const Tensor& weight = models[order[i]]->weight;
    const Tensor out = in * weight + in;
    return i == 4 ? out : go(out, i + 1) * weight;
  };
  const auto wanted = torch::autograd::grad(
      {go(x, 0).sum()}, {x, models[0]->weight, models[1]->weight, models[2]->weight});
  EXPECT_TRUE(near(context.gradient(x), wanted[0]));
  for (size_t i = 0; i < 3; ++i) EXPECT_TRUE(near(at_server(context, i), wanted[i + 1])) << i;
}

TEST_F(rpc_autograd_context, handlers_that_answer_later_take_part) {
  const Tensor x = leaf({0.5, -1, 2});
  Context context(me());
  context.backward({server().sync<later>(x).sum()});
  const Tensor &v = models[1]->weight, &w = models[2]->weight;
  const auto wanted = torch::autograd::grad({(x * w * v * w + x * w).sum()}, {x, v, w});
  EXPECT_TRUE(near(context.gradient(x), wanted[0]));
  EXPECT_TRUE(near(at_server(context, 1), wanted[1]));
  EXPECT_TRUE(near(at_server(context, 2), wanted[2]));
}

TEST_F(rpc_autograd_context, results_that_are_not_used_are_not_waited_for_and_give_no_zeros) {
  const Tensor x = leaf({1, 2, 3}), unused = leaf({1, 2, 3});
  Context context(me());
  const Tensors results = server().sync<both>(x);
  const Tensor other = server("server1").sync<times>(unused);
  context.backward({results[1].sum()});
  EXPECT_TRUE(near(context.gradient(x), leaf({3, 3, 3})));
  EXPECT_FALSE(context.gradient(unused).defined());
  EXPECT_FALSE(at_server(context, 2).defined());
}

TEST_F(rpc_autograd_context, results_and_arguments_may_be_used_twice) {
  const Tensor x = leaf({1, 2, 3});
  Context context(me());
  const Tensor y = server().sync<add_there>(x, x);
  const Tensor z = server("server1").sync<times>(y);
  context.backward({(y * z).sum(), y.sum()});
  const Tensor& w = models[2]->weight;
  const Tensor twice = x + x;
  const auto wanted = torch::autograd::grad({(twice * twice * w).sum() + twice.sum()}, {x, w});
  EXPECT_TRUE(near(context.gradient(x), wanted[0]));
  EXPECT_TRUE(near(at_server(context, 2), wanted[1]));
}

TEST_F(rpc_autograd_context, a_tensor_that_only_passes_through_keeps_its_gradient) {
  const Tensor x = leaf({1, 2, 3});
  Context context(me());
  const Tensor there = server().sync<same>(server("server1").sync<same>(x));
  EXPECT_TRUE(there.requires_grad());
  context.backward({(there * there).sum()});
  EXPECT_TRUE(near(context.gradient(x), leaf({2, 4, 6})));
}

TEST_F(rpc_autograd_context, what_requires_no_gradient_travels_as_without_a_context) {
  Context context(me());
  EXPECT_FALSE(server().sync<same>(at::ones({3})).requires_grad());
  const Tensor x = leaf({1.5, 2.5, 3.5});
  EXPECT_FALSE(server().sync<round_there>(x).requires_grad());
  EXPECT_FALSE(server().sync<sees_no_gradients>(x).requires_grad());
  {
    at::NoGradGuard no_grad;
    EXPECT_TRUE(server().sync<times>(x).requires_grad()) << "of the server's parameter";
  }
  models[1]->weight.requires_grad_(false);
  {
    at::NoGradGuard no_grad;
    EXPECT_FALSE(server().sync<times>(x).requires_grad());
  }
}

TEST_F(rpc_autograd_context, without_a_context_nothing_is_recorded) {
  EXPECT_FALSE(server().sync<times>(leaf({1, 2, 3})).requires_grad());
  EXPECT_EQ(rpc::autograd::contexts(workers[1]), 0);
  EXPECT_FALSE(rpc::autograd::current().has_value());
}

}  // namespace trireme::rpc_autograd_context_test
