// SPDX-License-Identifier: Apache-2.0
#include "trireme/tensor/live_bytes.h"

#include <gtest/gtest.h>
#include <torch/types.h>

#include <thread>

namespace live_bytes_test {

using namespace trireme;

TEST(tensor_live_bytes, counts_what_is_allocated_and_freed_and_the_most) {
  const at::Tensor before = torch::zeros({1000});
  LiveBytes live;
  EXPECT_EQ(live.now(), 0);
  {
    const at::Tensor a = torch::zeros({1000});
    EXPECT_GE(live.now(), 4000);
    EXPECT_LT(live.now(), 4400);
  }
  EXPECT_EQ(live.now(), 0);
  EXPECT_GE(live.peak(), 4000);
  live.reset_peak();
  EXPECT_EQ(live.peak(), 0);
}

TEST(tensor_live_bytes, sees_what_autograd_keeps_and_that_backward_frees_it) {
  const at::Tensor w = torch::ones({64, 64}).requires_grad_();
  LiveBytes live;
  at::Tensor loss;
  {
    at::Tensor x = torch::ones({64, 64});
    loss = torch::mm(x, w).tanh().sum();
  }
  const int64_t kept = live.now();
  EXPECT_GE(kept, 2 * 64 * 64 * 4);  // x and the output of tanh
  loss.backward();
  EXPECT_LT(live.now(), kept);
}

TEST(tensor_live_bytes, another_thread_counts_for_itself) {
  at::Tensor elsewhere;
  LiveBytes live;
  std::thread([&] { elsewhere = torch::zeros({1000}); }).join();
  EXPECT_EQ(live.now(), 0);
}

TEST(tensor_live_bytes, an_inner_one_hides_the_outer_until_it_ends) {
  LiveBytes outer;
  at::Tensor a, b;
  {
    LiveBytes inner;
    a = torch::zeros({1000});
    EXPECT_GE(inner.now(), 4000);
  }
  EXPECT_EQ(outer.now(), 0);
  b = torch::zeros({1000});
  EXPECT_GE(outer.now(), 4000);
}

}  // namespace live_bytes_test
