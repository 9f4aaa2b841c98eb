// SPDX-License-Identifier: Apache-2.0
#include "trireme/grad/hooks/master_hook.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tests/grad/small_net.h"
#include "tests/support/refusals.h"
#include "trireme/grad/ddp.h"
#include "trireme/grad/hooks/local_sgd_hook.h"

namespace trireme::testing::master_hook_test {
namespace {

void backward(Small& net, const CommHook& hook, Group g) {
  DistributedDataParallel ddp(net, g,
                              {.bucket_bytes = 400, .first_bucket_bytes = 200, .hook = hook});
  for (int round = 0; round < 2; ++round) {
    net->zero_grad();
    net->forward(input(4) + g.rank()).pow(2).mean().backward();
  }
}

bool same_gradients(Small& a, Small& b) {
  const auto of_b = b->named_parameters();
  for (const auto& item : a->named_parameters())
    if (!at::equal(item.value().grad(), of_b[item.key()].grad())) return false;
  return true;
}

TEST(grad_master_hook, a_parameter_server_has_the_bits_of_all_reduce) {
  for (int n : {1, 2, 3, 4})
    run_threads(n, [&](Group g) {
      Small plain = make(3), served = make(3);
      backward(plain, {}, g);
      backward(served, parameter_server_hook(n - 1), g);
      expect(same_gradients(plain, served), "the mean");
    });
}

TEST(grad_master_hook, gradients_that_stay_on_the_master_are_the_mean_there) {
  run_threads(3, [](Group g) {
    Small plain = make(3), mastered = make(3);
    backward(plain, {}, g);
    backward(mastered, reduce_to_master_hook(1), g);
    expect(same_gradients(plain, mastered) == (g.rank() == 1), "on rank 1 alone");
  });
}

TEST(grad_master_hook, a_master_that_is_not_there_is_refused_on_every_rank) {
  for (const std::string& s : what_ranks_throw(2, [](Group g) {
         Small net = make(3);
         backward(net, parameter_server_hook(2), g);
       }))
    EXPECT_TRUE(has(s, "master 2 is not in a group of 2")) << s;
}

TEST(grad_local_sgd_hook, gradients_stay_on_their_rank_or_among_the_near_ones) {
  run_threads(4, [](Group g) {
    bool steps_locally = false;
    Group near = g.split(g.rank() / 2);
    Small plain = make(3), own = make(3), pair = make(3), alone = make(3), two = make(3);
    backward(plain, {}, g);
    backward(own, local_sgd_hook([&] { return steps_locally; }, near), g);
    expect(same_gradients(plain, own), "together they are of all");
    steps_locally = true;
    backward(own, local_sgd_hook([&] { return steps_locally; }), g);
    alone->forward(input(4) + g.rank()).pow(2).mean().backward();
    expect(same_gradients(own, alone), "steps_locally each has its own");
    backward(pair, local_sgd_hook([&] { return steps_locally; }, near), g);
    backward(two, {}, near);
    // Other ranks' inputs: the near group's numbers are 0 and 1.
    two->zero_grad();
    DistributedDataParallel ddp(two, near, {});
    two->forward(input(4) + g.rank()).pow(2).mean().backward();
    expect(same_gradients(pair, two), "the near ranks' mean");
  });
}

}  // namespace
}  // namespace trireme::testing::master_hook_test
