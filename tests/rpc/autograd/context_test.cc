// SPDX-License-Identifier: Apache-2.0
#include "trireme/rpc/autograd/context.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

#include "tests/rpc/autograd/workers.h"
#include "trireme/channel/local/hub.h"
#include "trireme/tensor/torch_compat.h"

namespace trireme::rpc_autograd_context_test {
namespace {

using namespace rpc_test;
using rpc::Future;
using Tensors = std::vector<Tensor>;

Tensor add(const Tensor& a, const Tensor& b) { return a + b; }
TRIREME_REMOTE(add_there, add);
TRIREME_REMOTE(both, [](const Tensor& x) { return Tensors{x * 2, x * 3}; });
TRIREME_REMOTE(same, [](const Tensor& x) { return x; });
TRIREME_REMOTE(round_there, [](const Tensor& x) { return x.to(at::kLong); });

/// A worker's parameter, and what it does with it.
struct Model {
  Tensor weight = leaf({1, 2, 3});
  Tensor saved;
  std::function<void(Tensor&)> before_return = [](Tensor&) {};
  const rpc::Worker* me = nullptr;
  rpc::Peer peer(const char* name) const { return me->peer(name); }

  Tensor times(const Tensor& x) {
    Tensor y = x * weight;
    before_return(y);
    return y;
  }
  /// A → B → A → C → A: this worker's part is the odd one.
  Tensor through(const Tensor& x, int left);
  Future<Tensor> later(const Tensor& x);
  Tensor trains_itself(const Tensor& x);
  void spoils() { saved.mul_(2); }
  Tensor exponential(const Tensor& x) { return saved = (x * weight).exp(); }
  Tensor sees_no_gradients(const Tensor& x) {
    at::NoGradGuard no_grad;
    return x * weight;
  }
};
TRIREME_REMOTE(times, &Model::times);
TRIREME_REMOTE(through, &Model::through);
TRIREME_REMOTE(later, &Model::later);
TRIREME_REMOTE(trains_itself, &Model::trains_itself);
TRIREME_REMOTE(spoils, &Model::spoils);
TRIREME_REMOTE(exponential, &Model::exponential);
TRIREME_REMOTE(sees_no_gradients, &Model::sees_no_gradients);

class rpc_autograd_context : public ::testing::Test {
 protected:
  static constexpr const char* kNames[] = {"trainer0", "server0", "server1"};

  void SetUp() override {
    for (const char* name : kNames) {
      models.push_back(std::make_shared<Model>());
      workers.push_back(start_with_autograd(
          job, name,
          {rpc::offer<times, through, later, trains_itself, spoils, exponential, sees_no_gradients>(
               models.back()),
           rpc::offer<add_there, both, same, round_there>()}));
    }
    for (size_t i = 0; i < models.size(); ++i) models[i]->me = &workers[i];
  }
  void TearDown() override {
    for (const auto& worker : workers)
      EXPECT_TRUE(comes_about([&] { return rpc::autograd::contexts(worker) == 0; }))
          << worker.name();
  }

  const rpc::Worker& me() { return workers[0]; }
  rpc::Peer server(const char* name = "server0") { return me().peer(name); }
  Tensor at_server(const Context& context, size_t i = 1) {
    return gradient_at(workers[i], context.id(), models[i]->weight);
  }

  Job job{100us, 11};
  std::vector<std::shared_ptr<Model>> models;
  std::vector<rpc::Worker> workers;
};

Tensor Model::through(const Tensor& x, int left) {
  static constexpr const char* kWay[] = {"trainer0", "server1", "trainer0", "server0"};
  const Tensor y = x * weight + x;
  return left == 0 ? y : peer(kWay[left - 1]).sync<struct through>(y, left - 1) * weight;
}
Future<Tensor> Model::later(const Tensor& x) {
  const Tensor once = co_await peer("server1").async<struct times>(x);
  const Tensor twice = co_await peer("server1").async<struct times>(once * weight);
  co_return twice + once;
}
Tensor Model::trains_itself(const Tensor& x) {
  Tensor y = x * weight;
  {
    const Tensor own = leaf({4, 5, 6});
    Context inner(*me);
    inner.backward({peer("server1").sync<struct times>(own).sum()});
    y = y + inner.gradient(own);
  }
  return y;
}

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

TEST_F(rpc_autograd_context, two_at_once_do_not_mix) {
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

TEST_F(rpc_autograd_context, backward_twice_adds_up_where_the_graph_was_retained) {
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

TEST_F(rpc_autograd_context, a_second_backward_of_another_loss_needs_the_graph_that_they_share) {
  const Tensor x = leaf({1, 2, 3});
  Context context(me());
  const Tensor y = server().sync<both>(x)[0];
  const Tensor one = y.sum(), other = (2 * y).sum();
  context.backward({one});
  const auto text = text_of<UsageError>([&] { context.backward({other}); });
  EXPECT_NE(text.find("has let go of the graph on worker 'server0': pass retain_graph"), text.npos)
      << text;
}

TEST_F(rpc_autograd_context, a_local_backward_and_a_double_one_are_refused) {
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

TEST_F(rpc_autograd_context, a_tensor_that_was_changed_in_place_is_an_error_with_its_worker) {
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

TEST_F(rpc_autograd_context, changing_what_was_sent_after_the_call_changes_no_gradient) {
  const Tensor x = leaf({1, 2, 3});
  Context context(me());
  Tensor y = x * 2;
  const Tensor there = server().sync<times>(y);
  y.add_(100);
  context.backward({there.sum() + y.sum()});
  EXPECT_TRUE(near(context.gradient(x), leaf({4, 6, 8})));
  EXPECT_TRUE(near(at_server(context), leaf({2, 4, 6})));
}

TEST_F(rpc_autograd_context, hooks_run_once_with_the_whole_gradient) {
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

TEST_F(rpc_autograd_context, gradients_may_go_through_the_accumulators) {
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

TEST_F(rpc_autograd_context, a_handler_may_have_a_context_of_its_own) {
  const Tensor x = leaf({1, 2, 3});
  Context context(me());
  const Tensor y = server().sync<trains_itself>(x);
  context.backward({y.sum()});
  EXPECT_TRUE(near(context.gradient(x), models[1]->weight.detach()));
  EXPECT_FALSE(at_server(context, 2).defined());
}

TEST_F(rpc_autograd_context, other_threads_may_be_within_it_too) {
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

TEST_F(rpc_autograd_context, a_deep_graph_is_looked_through_without_recursion) {
  const Tensor x = leaf({1, 2, 3});
  Context context(me());
  Tensor y = server().sync<times>(x);
  for (int i = 0; i < 50'000; ++i) y = -y;
  context.backward({y.sum()});
  EXPECT_TRUE(near(context.gradient(x), leaf({1, 2, 3})));
}

TEST_F(rpc_autograd_context, what_comes_of_another_context_is_refused) {
  const Tensor x = leaf({1, 2, 3});
  Context outer(me());
  const Tensor y = server().sync<times>(x);
  Context inner(me());
  const auto text = text_of<UsageError>([&] { inner.backward({y.sum()}); });
  EXPECT_NE(text.find("depend on a tensor of context"), text.npos) << text;
}

TEST_F(rpc_autograd_context, losses_that_are_none_are_refused) {
  Context context(me());
  EXPECT_THROW(context.backward({}), UsageError);
  EXPECT_THROW(context.backward({Tensor()}), UsageError);
  auto text = text_of<UsageError>([&] { context.backward({leaf({1, 2})}); });
  EXPECT_NE(text.find("this one has 2: sum it up"), text.npos) << text;
  text = text_of<UsageError>([&] { context.backward({at::ones({})}); });
  EXPECT_NE(text.find("requires no gradient"), text.npos) << text;
}

TEST_F(rpc_autograd_context, a_loss_without_remote_calls_is_as_a_local_one) {
  const Tensor x = leaf({1, 2, 3});
  Context context(me());
  context.backward({(x * x).sum()});
  EXPECT_TRUE(near(context.gradient(x), leaf({2, 4, 6})));
}

TEST_F(rpc_autograd_context, workers_that_take_no_part_get_no_tensor_that_requires_a_gradient) {
  auto plain = job.start("plain", {rpc::offer<same>()});
  EXPECT_THROW(Context{plain}, UsageError);
  Context context(me());
  const rpc::Peer peer = me().peer("plain");
  EXPECT_TRUE(at::equal(peer.sync<same>(at::ones({3})), at::ones({3})));
  const auto text = text_of<UsageError>([&] { peer.sync<same>(leaf({1, 2, 3})); });
  EXPECT_NE(text.find("worker 'plain', which takes no part in the context"), text.npos) << text;
  EXPECT_FALSE(peer.sync<same>(leaf({1, 2, 3}).detach()).requires_grad());
}

TEST_F(rpc_autograd_context, is_over_on_all_workers_at_its_end) {
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

TEST_F(rpc_autograd_context, one_offer_is_for_one_worker) {
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
