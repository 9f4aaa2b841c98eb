// SPDX-License-Identifier: Apache-2.0
// What may be done within a context, what is refused, and when it is over.
#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

#include "tests/rpc/autograd/context_workers.h"
#include "trireme/channel/local/hub.h"
#include "trireme/rpc/autograd/context.h"
#include "trireme/tensor/torch_compat.h"

namespace trireme::rpc_autograd_context_test {
namespace {

class rpc_autograd_context_rules : public ContextWorkers {};

}  // namespace

TEST_F(rpc_autograd_context_rules, two_at_once_do_not_mix) {
  std::vector<std::thread> trainers;
  for (int t = 1; t <= 4; ++t)
    trainers.emplace_back([&, t] {
      for (int i = 1; i <= 25; ++i) {
        const Tensor x = leaf({1.0 * t, 1.0 * i, 2});
        Context context(me());
        const Tensor y = server().sync<times>(x);
        context.backward({server("server1").sync<times>(y).sum()});
        EXPECT_TRUE(near(at_server(context), x.detach() * models[2]->weight.detach()));
        EXPECT_TRUE(near(context.gradient(x), leaf({1, 4, 9})));
      }
    });
  for (auto& trainer : trainers) trainer.join();
}

TEST_F(rpc_autograd_context_rules, backward_twice_adds_up_where_the_graph_was_retained) {
  const Tensor x = leaf({1, 2, 3});
  Context context(me());
  const Tensor loss = server().sync<times>(x).sin().sum();
  context.backward({loss}, {.retain_graph = true});
  const Tensor once = context.gradient(x).clone();
  context.backward({loss});
  EXPECT_TRUE(near(context.gradient(x), 2 * once));
  const auto text = text_of<Error>([&] { context.backward({loss}); });
  EXPECT_TRUE(text.find("retain_graph") != text.npos || text.find("second time") != text.npos)
      << text;
}

TEST_F(rpc_autograd_context_rules,
       a_second_backward_of_another_loss_needs_the_graph_that_they_share) {
  const Tensor x = leaf({1, 2, 3});
  Context context(me());
  const Tensor y = server().sync<both>(x)[0];
  const Tensor one = y.sum(), other = (2 * y).sum();
  context.backward({one});
  const auto text = text_of<UsageError>([&] { context.backward({other}); });
  EXPECT_NE(text.find("has let go of the graph on worker 'server0': pass retain_graph"), text.npos)
      << text;
}

TEST_F(rpc_autograd_context_rules, a_local_backward_and_a_double_one_are_refused) {
  const Tensor x = leaf({1, 2, 3});
  Context context(me());
  const Tensor loss = server().sync<times>(x).sum();
  const auto wanted =
      "came from worker 'server0' within a context has its graph there: call backward()";
  auto text = text_of<UsageError>([&] { loss.backward({}, /*retain_graph=*/true); });
  EXPECT_NE(text.find(wanted), text.npos) << text;
  text =
      text_of<UsageError>([&] { loss.backward({}, /*retain_graph=*/true, /*create_graph=*/true); });
  EXPECT_NE(text.find(wanted), text.npos) << text;
  context.backward({loss});
  EXPECT_FALSE(context.gradient(x).requires_grad());
  EXPECT_THROW(context.backward({context.gradient(x).sum()}), UsageError);
}

TEST_F(rpc_autograd_context_rules, a_tensor_that_was_changed_in_place_is_an_error_with_its_worker) {
  const Tensor x = leaf({1, 2, 3});
  Context context(me());
  const Tensor loss = server().sync<exponential>(x).sum();
  {
    // Not within it: the change is not part of the graph.
    std::thread other([&] {
      at::NoGradGuard no_grad;
      server().sync<spoils>();
    });
    other.join();
  }
  try {
    context.backward({loss});
    FAIL() << "nothing was thrown";
  } catch (const rpc::RemoteError& error) {
    EXPECT_EQ(error.worker(), "server0");
    EXPECT_NE(error.text().find("inplace operation"), std::string::npos) << error.text();
  }
}

TEST_F(rpc_autograd_context_rules, changing_what_was_sent_after_the_call_changes_no_gradient) {
  const Tensor x = leaf({1, 2, 3});
  Context context(me());
  Tensor y = x * 2;
  const Tensor there = server().sync<times>(y);
  y.add_(100);
  context.backward({there.sum() + y.sum()});
  EXPECT_TRUE(near(context.gradient(x), leaf({4, 6, 8})));
  EXPECT_TRUE(near(at_server(context), leaf({2, 4, 6})));
}

TEST_F(rpc_autograd_context_rules, hooks_run_once_with_the_whole_gradient) {
  std::atomic<int> of_weight{0}, of_result{0};
  models[1]->weight.register_hook([&](const Tensor& gradient) {
    ++of_weight;
    return 10 * gradient;
  });
  models[1]->before_return = [&](Tensor& y) {
    y.register_hook([&](const Tensor&) { ++of_result; });
  };
  const Tensor x = leaf({1, 2, 3});
  Context context(me());
  // The second call's argument is the first one's result: one graph on the server.
  const Tensor y = server().sync<times>(server().sync<times>(x));
  context.backward({y.sum()});
  EXPECT_EQ(of_result, 2);
  if (!compat::kGradCallsLeafHooks) {
    EXPECT_EQ(of_weight, 1);
  }
  EXPECT_TRUE(near(at_server(context), 20 * (x * models[1]->weight).detach()));
}

TEST_F(rpc_autograd_context_rules, gradients_may_go_through_the_accumulators) {
  std::atomic<int> fired{0};
  const compat::GradHook hook(models[1]->weight, [&] { ++fired; });
  const Tensor x = leaf({1, 2, 3});
  for (int i = 1; i <= 2; ++i) {
    Context context(me());
    const Tensor y = server().sync<times>(x) + server().sync<times>(2 * x);
    context.backward({y.sum()}, {.accumulate = true});
    EXPECT_TRUE(context.gradients().empty());
    EXPECT_TRUE(near(x.grad(), i * leaf({3, 6, 9})));
    EXPECT_TRUE(near(models[1]->weight.grad(), i * leaf({3, 6, 9})));
    EXPECT_EQ(fired, i);
  }
}

TEST_F(rpc_autograd_context_rules, a_handler_may_have_a_context_of_its_own) {
  const Tensor x = leaf({1, 2, 3});
  Context context(me());
  const Tensor y = server().sync<trains_itself>(x);
  context.backward({y.sum()});
  EXPECT_TRUE(near(context.gradient(x), models[1]->weight.detach()));
  EXPECT_FALSE(at_server(context, 2).defined());
}

TEST_F(rpc_autograd_context_rules, other_threads_may_be_within_it_too) {
  const Tensor x = leaf({1, 2, 3});
  Context context(me());
  Tensor y;
  std::thread other([&] {
    Context::Within within(context);
    EXPECT_EQ(rpc::autograd::current()->number, context.id().number);
    y = server().sync<times>(x);
  });
  other.join();
  context.backward({y.sum()});
  EXPECT_TRUE(near(context.gradient(x), models[1]->weight.detach()));
}

TEST_F(rpc_autograd_context_rules, a_deep_graph_is_looked_through_without_recursion) {
  const Tensor x = leaf({1, 2, 3});
  Context context(me());
  Tensor y = server().sync<times>(x);
  for (int i = 0; i < 50'000; ++i) y = -y;
  context.backward({y.sum()});
  EXPECT_TRUE(near(context.gradient(x), leaf({1, 2, 3})));
}

TEST_F(rpc_autograd_context_rules, what_comes_of_another_context_is_refused) {
  const Tensor x = leaf({1, 2, 3});
  Context outer(me());
  const Tensor y = server().sync<times>(x);
  Context inner(me());
  const auto text = text_of<UsageError>([&] { inner.backward({y.sum()}); });
  EXPECT_NE(text.find("depend on a tensor of context"), text.npos) << text;
}

TEST_F(rpc_autograd_context_rules, losses_that_are_none_are_refused) {
  Context context(me());
  EXPECT_THROW(context.backward({}), UsageError);
  EXPECT_THROW(context.backward({Tensor()}), UsageError);
  auto text = text_of<UsageError>([&] { context.backward({leaf({1, 2})}); });
  EXPECT_NE(text.find("this one has 2: sum it up"), text.npos) << text;
  text = text_of<UsageError>([&] { context.backward({at::ones({})}); });
  EXPECT_NE(text.find("requires no gradient"), text.npos) << text;
}

TEST_F(rpc_autograd_context_rules, a_loss_without_remote_calls_is_as_a_local_one) {
  const Tensor x = leaf({1, 2, 3});
  Context context(me());
  context.backward({(x * x).sum()});
  EXPECT_TRUE(near(context.gradient(x), leaf({2, 4, 6})));
}

TEST_F(rpc_autograd_context_rules,
       workers_that_take_no_part_get_no_tensor_that_requires_a_gradient) {
  auto plain = job.start("plain", {rpc::offer<same>()});
  EXPECT_THROW(Context{plain}, UsageError);
  Context context(me());
  const rpc::Peer peer = me().peer("plain");
  EXPECT_TRUE(at::equal(peer.sync<same>(at::ones({3})), at::ones({3})));
  const auto text = text_of<UsageError>([&] { peer.sync<same>(leaf({1, 2, 3})); });
  EXPECT_NE(text.find("worker 'plain', which takes no part in the context"), text.npos) << text;
  EXPECT_FALSE(peer.sync<same>(leaf({1, 2, 3}).detach()).requires_grad());
}

TEST_F(rpc_autograd_context_rules, is_over_on_all_workers_at_its_end) {
  rpc::autograd::ContextId id;
  Tensor y;
  {
    Context context(me());
    id = context.id();
    y = models[0]->through(leaf({1, 2, 3}), 4);
    EXPECT_EQ(rpc::autograd::contexts(workers[2]), 1);
  }
  for (const auto& worker : workers)
    EXPECT_TRUE(comes_about([&] { return rpc::autograd::contexts(worker) == 0; }));
  EXPECT_THROW(rpc::autograd::gradients(me(), id), UsageError);
}

TEST_F(rpc_autograd_context_rules, one_offer_is_for_one_worker) {
  const rpc::Offer offer = rpc::autograd::offer();
  auto first = job.start("first", {offer});
  const auto text = text_of<UsageError>([&] { job.start("second", {offer}); });
  EXPECT_NE(text.find("workers 'first' and 'second' were given one"), text.npos) << text;
}

// Through the shared memory of a host, with tensors that are lent.
TEST(rpc_autograd_local, gradients_travel_through_shared_memory) {
  const std::vector<rpc::Road> roads = {
      {"local", [](const channel::Peer& self, channel::Accept accept) {
         return std::shared_ptr<channel::Hub>(
             channel::local_hub({.self = self, .accept = std::move(accept)}));
       }}};
  Job job;
  auto model = std::make_shared<Model>();
  model->weight = at::ones({300, 300}, at::kDouble).mul_(2).requires_grad_();
  auto server = start_with_autograd(job, "server0", {rpc::offer<times>(model)}, roads);
  auto me = start_with_autograd(job, "trainer0", {}, roads);
  const Tensor x = at::ones({300, 300}, at::kDouble).requires_grad_();
  for (int i = 0; i < 5; ++i) {
    Context context(me);
    context.backward({me.peer("server0").sync<times>(x * 3).sum()});
    EXPECT_TRUE(near(context.gradient(x), at::full({300, 300}, 6.0, at::kDouble)));
    EXPECT_TRUE(near(gradient_at(server, context.id(), model->weight),
                     at::full({300, 300}, 3.0, at::kDouble)));
  }
}

}  // namespace trireme::rpc_autograd_context_test
