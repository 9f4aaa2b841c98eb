// SPDX-License-Identifier: Apache-2.0
// Calls through references, within a context.
#include "trireme/rpc/object/rref.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "tests/rpc/autograd/workers.h"

namespace trireme::rpc_autograd_rref_test {
namespace {

using namespace rpc_test;
using rpc::RRef;

/// What it is made of may have a graph that goes on at its maker.
struct Layer {
  explicit Layer(const Tensor& first)
      : weight(first.requires_grad() ? first : first.clone().requires_grad_()) {}
  Tensor times(const Tensor& x) { return x * weight; }
  Tensor weight;
};
TRIREME_REMOTE_CLASS(Layer, const Tensor&);
TRIREME_REMOTE(layer_times, &Layer::times);

/// Passes on to a layer of another worker.
struct Relay {
  explicit Relay(const RRef<Layer>& layer) : next(layer) {}
  Tensor through(const Tensor& x) { return next.sync<layer_times>(x * own) + x; }
  RRef<Layer> next;
  Tensor own = leaf({2, 3, 4});
};
TRIREME_REMOTE_CLASS(Relay, const RRef<Layer>&);
TRIREME_REMOTE(relay_through, &Relay::through);

TRIREME_REMOTE(cubed, [](const Tensor& x) { return x.pow(3); });

class rpc_autograd_rref : public ::testing::Test {
 protected:
  rpc::Worker start(const std::string& name) {
    return start_with_autograd(job, name,
                               {rpc::offer_objects<Layer, layer_times>(),
                                rpc::offer_objects<Relay, relay_through>(), rpc::offer<cubed>()});
  }
  void TearDown() override {
    for (const auto* worker : {&me, &one, &two})
      EXPECT_TRUE(comes_about([&] {
        const auto now = rpc::detail::Access::objects(*worker)->counts();
        return rpc::autograd::contexts(*worker) == 0 && now.owned + now.held + now.passed == 0;
      })) << worker->name();
  }
  /// What a worker's parameters have got.
  static Tensor only_gradient(const rpc::Worker& worker, const Context& context) {
    const auto all = rpc::autograd::gradients(worker, context.id());
    return all.size() == 1 ? all[0].second : Tensor();
  }

  Job job{100us, 37};
  rpc::Worker me = start("trainer0"), one = start("server0"), two = start("server1");
  const Tensor x = leaf({1, 2, 3}), w = leaf({4, 5, 6});
};

}  // namespace

TEST_F(rpc_autograd_rref, an_owners_method_takes_part_and_its_parameter_has_a_gradient) {
  const auto layer = me.peer("server0").remote<Layer>(w.detach());
  Context context(me);
  context.backward({layer.sync<layer_times>(x).sum() + layer.sync<layer_times>(2 * x).sum()});
  EXPECT_TRUE(near(context.gradient(x), 3 * w.detach()));
  EXPECT_TRUE(near(only_gradient(one, context), 3 * x.detach()));
}

TEST_F(rpc_autograd_rref, a_chain_of_references_over_three_workers_is_one_graph) {
  const auto layer = me.peer("server1").remote<Layer>(w.detach());
  const auto relay = me.peer("server0").remote<Relay>(layer);
  Context context(me);
  const Tensor own = leaf({2, 3, 4}), far = w.detach().clone().requires_grad_();
  const Tensor local = leaf({1, 2, 3});
  context.backward({relay.sync<relay_through>(x).pow(2).sum()});
  ((local * own * far + local).pow(2).sum()).backward();
  EXPECT_TRUE(near(context.gradient(x), local.grad()));
  EXPECT_TRUE(near(only_gradient(one, context), own.grad()));
  EXPECT_TRUE(near(only_gradient(two, context), far.grad()));
}

TEST_F(rpc_autograd_rref, what_an_object_is_made_of_has_a_gradient_at_its_maker) {
  Context context(me);
  const auto layer = me.peer("server0").remote<Layer>(w);
  auto at_once = layer.async<layer_times>(x);  // before it is known to be there
  context.backward({at_once.get().sum() + layer.sync<layer_times>(x).sum()});
  EXPECT_TRUE(near(context.gradient(w), 2 * x.detach()));
  EXPECT_TRUE(near(context.gradient(x), 2 * w.detach()));
  EXPECT_TRUE(rpc::autograd::gradients(one, context.id()).empty()) << "it has no leaf there";
}

TEST_F(rpc_autograd_rref, the_result_of_a_function_that_stays_is_connected_when_it_is_fetched) {
  Context context(me);
  const auto there = me.peer("server0").remote<cubed>(x);
  const auto again = me.peer("server1").remote<cubed>(there.to_here());
  context.backward({again.to_here().sum()});
  EXPECT_TRUE(near(context.gradient(x), 9 * x.detach().pow(8)));
}

TEST_F(rpc_autograd_rref, what_was_made_of_another_context_is_refused) {
  RRef<Layer> layer;
  {
    Context first(me);
    layer = me.peer("server0").remote<Layer>(w);
    EXPECT_TRUE(near(layer.sync<layer_times>(x).detach(), (x * w).detach()));
  }
  Context second(me);
  const Tensor y = layer.sync<layer_times>(x);
  const auto text = text_of<Error>([&] { second.backward({y.sum()}); });
  EXPECT_NE(text.find("context"), text.npos) << text;
}

TEST_F(rpc_autograd_rref, without_a_context_nothing_is_recorded) {
  const auto layer = me.peer("server0").remote<Layer>(w);
  EXPECT_FALSE(layer.sync<layer_times>(x).requires_grad());
  EXPECT_FALSE(me.peer("server0").remote<cubed>(x).to_here().requires_grad());
}

}  // namespace trireme::rpc_autograd_rref_test
