// SPDX-License-Identifier: Apache-2.0
// Backward over workers that die, are silent, or say what they should not.
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "tests/rpc/autograd/workers.h"
#include "trireme/rpc/autograd/contexts.h"

namespace trireme::rpc_autograd_faults_test {
namespace {

using namespace rpc_test;
using Tensors = std::vector<Tensor>;

/// Its result's gradient waits at a gate, or throws.
struct Model {
  Tensor weight = leaf({1, 2, 3});
  std::shared_ptr<Gate> gate;
  bool throws = false;
  Tensor times(const Tensor& x) {
    Tensor y = x * weight;
    if (y.requires_grad())
      y.register_hook([this](const Tensor&) {
        if (gate) gate->wait();
        if (throws) throw std::out_of_range("a hook of the server's");
      });
    return y;
  }
};
TRIREME_REMOTE(times, &Model::times);

class rpc_autograd_faults : public ::testing::Test {
 protected:
  rpc::Worker start(const std::string& name) {
    models.push_back(std::make_shared<Model>());
    return start_with_autograd(job, name, {rpc::offer<times>(models.back())});
  }
  bool all_over(const rpc::Worker& worker) {
    return comes_about([&] { return rpc::autograd::contexts(worker) == 0; });
  }

  Job job{100us, 13};
  std::vector<std::shared_ptr<Model>> models;
  rpc::Worker me = start("trainer0"), one = start("server0"), two = start("server1");
  const Tensor x = leaf({1, 2, 3});
};

}  // namespace

TEST_F(rpc_autograd_faults, a_worker_that_dies_in_backward_is_lost_to_all_that_wait_for_it) {
  models[1]->gate = std::make_shared<Gate>();
  {
    Context context(me);
    // The gradient goes to server0, which never passes it on to server1.
    const Tensor y = me.peer("server1").sync<times>(x);
    const Tensor z = me.peer("server0").sync<times>(y);
    std::thread killer([&] {
      ASSERT_TRUE(models[1]->gate->has_waiting(1));
      job.net->kill("server0");
    });
    const auto before = Clock::now();
    const auto text = text_of<PeerLost>([&] { context.backward({z.sum()}); });
    EXPECT_NE(text.find("server0"), text.npos) << text;
    EXPECT_LT(seconds_since(before), 10) << "not only at the deadline";
    killer.join();
    models[1]->gate->open();
  }
  EXPECT_TRUE(all_over(me));
  EXPECT_TRUE(all_over(two));
  EXPECT_TRUE(all_over(one));
  // And the others go on.
  Context context(me);
  context.backward({me.peer("server1").sync<times>(x).sum()});
  EXPECT_TRUE(near(context.gradient(x), leaf({1, 2, 3})));
}

TEST_F(rpc_autograd_faults, a_worker_that_is_silent_ends_the_backward_at_its_deadline) {
  {
    Context context(me);
    const Tensor y = me.peer("server0").sync<times>(x);
    job.net->stop("server0");
    EXPECT_THROW(context.backward({y.sum()}, {.deadline = 100ms}), Timeout);
    job.net->go_on("server0");
  }
  EXPECT_TRUE(all_over(me));
  EXPECT_TRUE(all_over(one));
}

TEST_F(rpc_autograd_faults, a_worker_that_stops_in_the_middle_ends_it_at_its_deadline_too) {
  models[1]->gate = std::make_shared<Gate>();
  {
    Context context(me);
    const Tensor y = me.peer("server0").sync<times>(me.peer("server1").sync<times>(2 * x));
    EXPECT_THROW(context.backward({y.sum()}, {.deadline = 200ms}), Timeout);
    models[1]->gate->open();
  }
  EXPECT_TRUE(all_over(me));
  EXPECT_TRUE(all_over(one));
  EXPECT_TRUE(all_over(two));
}

TEST_F(rpc_autograd_faults, what_a_hook_throws_is_told_with_its_worker) {
  models[1]->throws = true;
  {
    Context context(me);
    const Tensor y = me.peer("server0").sync<times>(me.peer("server1").sync<times>(x));
    try {
      context.backward({y.sum()});
      FAIL() << "nothing was thrown";
    } catch (const rpc::RemoteError& error) {
      EXPECT_EQ(error.worker(), "server0");
      EXPECT_EQ(error.type(), "std::out_of_range");
      EXPECT_NE(error.text().find("a hook of the server's"), std::string::npos);
    }
  }
  EXPECT_TRUE(all_over(two));
  models[1]->throws = false;
  Context context(me);
  context.backward({me.peer("server0").sync<times>(x).sum()});
  EXPECT_TRUE(near(context.gradient(x), leaf({1, 2, 3})));
}

TEST_F(rpc_autograd_faults, the_death_of_who_began_a_context_ends_it_everywhere) {
  auto trainer = std::make_unique<rpc::Worker>(start("trainer1"));
  auto context = std::make_unique<Context>(*trainer);
  trainer->peer("server0").sync<times>(x);
  EXPECT_EQ(rpc::autograd::contexts(one), 1);
  job.net->kill("trainer1");
  EXPECT_TRUE(all_over(one));
  context.reset();
}

TEST_F(rpc_autograd_faults, a_worker_that_leaves_ends_its_contexts) {
  {
    auto trainer = start("trainer1");
    Context context(trainer);
    trainer.peer("server0").sync<times>(x);
    trainer.shutdown({.graceful = false, .deadline = kPlenty});
    EXPECT_TRUE(all_over(one));
  }
}

TEST_F(rpc_autograd_faults, a_worker_that_returns_under_its_name_is_another_one) {
  Context context(me);
  Tensor y;
  {
    auto third = start("server2");
    y = me.peer("server2").sync<times>(x);
    third.shutdown({.graceful = false, .deadline = kPlenty});
  }
  auto returned = start("server2");
  EXPECT_NO_THROW(me.peer("server2").sync<times>(x.detach()));
  EXPECT_THROW(context.backward({y.sum()}), Error);
}

// What somebody says who has the job's secret and another program.
TEST_F(rpc_autograd_faults, gradients_that_nobody_awaits_are_refused_and_harm_nobody) {
  using namespace rpc::autograd;
  const rpc::Peer peer = me.peer("server0");
  EXPECT_THROW((peer.sync<GradientsCame>(ContextId{99, 1}, uint64_t{1}, Pair{1, 1, true},
                                         Tensors{at::ones({3})})),
               UsageError);
  models[1]->gate = std::make_shared<Gate>();
  Context context(me);
  const Tensor y = peer.sync<times>(me.peer("server1").sync<times>(x));
  std::thread backward([&] { context.backward({y.sum()}); });
  ASSERT_TRUE(models[1]->gate->has_waiting(1));
  const Pair real{context.id().member, 1, true};
  // Another's, twice, of too many tensors, of a backward that is not.
  const rpc::Peer others = two.peer("server0"), second = me.peer("server1");
  EXPECT_THROW((others.sync<GradientsCame>(context.id(), uint64_t{1}, Pair{real.member, 2, true},
                                           Tensors{at::ones({3}, at::kDouble)})),
               UsageError);
  EXPECT_THROW((peer.sync<GradientsCame>(context.id(), uint64_t{1}, Pair{real.member, 2, true},
                                         Tensors{at::ones({3}, at::kDouble)})),
               UsageError);
  EXPECT_THROW((second.sync<GradientsCame>(context.id(), uint64_t{1}, real,
                                           Tensors{at::ones({3}), at::ones({3})})),
               UsageError);
  EXPECT_THROW((second.sync<GradientsCame>(context.id(), uint64_t{7}, real, Tensors{})),
               UsageError);
  EXPECT_THROW(
      (peer.sync<RunPasses>(context.id(), uint64_t{1}, BackwardKind{}, std::vector<PassOrder>{})),
      UsageError);
  EXPECT_THROW((peer.sync<LookBehind>(context.id(), uint64_t{1}, false, std::vector<Pair>{real})),
               UsageError);
  models[1]->gate->open();
  backward.join();
  EXPECT_TRUE(near(context.gradient(x), (models[1]->weight * models[2]->weight).detach()));
}

TEST_F(rpc_autograd_faults, a_gradient_of_another_size_is_an_error_of_that_backward) {
  using namespace rpc::autograd;
  models[1]->gate = std::make_shared<Gate>();
  Context context(me);
  const Tensor y = me.peer("server0").sync<times>(me.peer("server1").sync<times>(x));
  std::string text;
  std::thread backward([&] { text = text_of<Error>([&] { context.backward({y.sum()}); }); });
  ASSERT_TRUE(models[1]->gate->has_waiting(1));
  // In place of server0's, whose argument came from here.
  me.peer("server1").sync<GradientsCame>(context.id(), uint64_t{1},
                                         Pair{context.id().member, 1, true},
                                         Tensors{at::ones({5}, at::kDouble)});
  models[1]->gate->open();
  backward.join();
  // Whichever is told first: what the engine says of it, or that the real one comes too late.
  EXPECT_TRUE(text.find("invalid gradient") != text.npos ||
              text.find("awaits no such gradient") != text.npos ||
              text.find("is not under way") != text.npos)
      << text;
  Context next(me);
  models[1]->gate = nullptr;
  next.backward({me.peer("server1").sync<times>(x).sum()});
  EXPECT_TRUE(near(next.gradient(x), leaf({1, 2, 3})));
}

TEST_F(rpc_autograd_faults, many_backwards_at_once_need_no_thread_each) {
  std::vector<std::thread> trainers;
  for (int t = 0; t < 12; ++t)
    trainers.emplace_back([&] {
      for (int i = 0; i < 8; ++i) {
        const Tensor mine = leaf({1, 2, 3});
        Context context(me);
        // server0 → trainer0 → server0 …: each waits for the other.
        Tensor y = mine;
        for (int k = 0; k < 3; ++k) y = me.peer("server0").sync<times>(y) * y;
        context.backward({y.sum()});
        EXPECT_TRUE(context.gradient(mine).defined());
      }
    });
  for (auto& trainer : trainers) trainer.join();
  EXPECT_LE(one.threads(), 16);
}

}  // namespace trireme::rpc_autograd_faults_test
