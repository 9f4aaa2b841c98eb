// SPDX-License-Identifier: Apache-2.0
#include "trireme/train/balance/own_time.h"

#include <gtest/gtest.h>

#include <future>
#include <thread>

namespace own_time_test {

using namespace trireme;

namespace {

void compute(double seconds) {
  volatile double x = 1;
  for (const auto begin = Clock::now(); seconds_since(begin) < seconds;) x = x * 1.0000001;
}

}  // namespace

TEST(train_own_time, only_what_lies_between_computing_and_waiting_counts) {
  int64_t now = 0;
  OwnTime time([&] { return now; });
  time.computing();
  now += 5'000'000'000;
  time.waiting();
  now += 100'000'000'000;
  time.computing();
  time.computing();
  now += 1'000'000'000;
  EXPECT_DOUBLE_EQ(time.take(), 6);
  now += 2'000'000'000;
  EXPECT_DOUBLE_EQ(time.take(), 2) << "it goes on computing";
  time.waiting();
  time.waiting();
  EXPECT_DOUBLE_EQ(time.take(), 0);
}

// What balance went wrong by: a rank that sleeps inside backward, for others, is not slow.
TEST(train_own_time, a_thread_that_sleeps_is_not_computing_and_one_that_works_is) {
  OwnTime time;
  std::promise<void> come;
  std::thread peer([&] {
    compute(0.2);
    come.set_value();
  });
  time.computing();
  come.get_future().wait();
  time.waiting();
  const double slept = time.take();
  peer.join();
  time.computing();
  compute(0.1);
  time.waiting();
  EXPECT_LT(slept, 0.1) << "it waited for 0.2 s of somebody's work";
  EXPECT_GT(time.take(), 0.09);
}

}  // namespace own_time_test
