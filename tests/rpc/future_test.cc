// SPDX-License-Identifier: Apache-2.0
#include "trireme/rpc/future.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "tests/rpc/workers.h"

namespace trireme::rpc_future_test {

using namespace rpc_test;
using rpc::Future;
using rpc::Promise;

TEST(rpc_future, a_value_is_taken_once) {
  Promise<std::string> promise;
  Future<std::string> future = promise.future();
  EXPECT_FALSE(future.ready());
  EXPECT_TRUE(promise.set("value"));
  EXPECT_FALSE(promise.set("another"));
  EXPECT_TRUE(future.ready());
  EXPECT_EQ(future.get(), "value");
  EXPECT_FALSE(future.valid());
  EXPECT_NE(text_of<UsageError>([&] { future.get(); }).find("taken before"), std::string::npos);
  EXPECT_THROW(Future<int>().get(), UsageError);
  EXPECT_THROW(promise.future(), UsageError);
}

TEST(rpc_future, get_waits_for_the_thread_that_keeps_the_promise) {
  Promise<int> promise;
  auto future = promise.future();
  std::thread keeper([&] { promise.set(7); });
  EXPECT_EQ(future.get(), 7);
  keeper.join();
}

TEST(rpc_future, then_takes_the_value_and_flattens_futures_of_futures) {
  Promise<int> promise;
  Promise<std::string> inner;
  auto sum = promise.future()
                 .then([](int x) { return x + 1; })
                 .then([&](int x) {
                   EXPECT_EQ(x, 4);
                   return inner.future();
                 })
                 .then([](const std::string& text) { return text + "!"; });
  promise.set(3);
  EXPECT_FALSE(sum.ready());
  inner.set("done");
  EXPECT_EQ(sum.get(), "done!");
}

TEST(rpc_future, then_of_nothing_and_of_what_cannot_be_copied) {
  Promise<void> promise;
  auto held = std::make_unique<int>(5);
  auto future =
      promise.future().then([held = std::move(held)] { return std::make_unique<int>(*held + 1); });
  promise.set();
  EXPECT_EQ(*future.get(), 6);
}

TEST(rpc_future, an_error_passes_then_by) {
  Promise<int> promise;
  bool called = false;
  auto future = promise.future().then([&](int) { called = true; }).then([] { return 1; });
  promise.fail(std::make_exception_ptr(NumericError("not a number")));
  EXPECT_EQ(text_of<NumericError>([&] { future.get(); }), "not a number");
  EXPECT_FALSE(called);
}

TEST(rpc_future, what_then_throws_is_the_error_of_its_future) {
  auto future = rpc::ready(1).then([](int) -> int { throw Corrupt("in then"); });
  EXPECT_EQ(text_of<Corrupt>([&] { future.get(); }), "in then");
}

TEST(rpc_future, a_promise_that_is_dropped_is_Aborted) {
  auto promise = std::make_unique<Promise<int>>();
  auto future = promise->future();
  promise.reset();
  EXPECT_THROW(future.get(), Aborted);
}

TEST(rpc_future, cancel_reaches_the_future_behind_it) {
  Promise<int> promise;
  auto future = promise.future().then([](int x) { return x; });
  future.cancel();
  EXPECT_THROW(future.get(), Aborted);
  EXPECT_FALSE(promise.set(1)) << "nobody waits for it any more";
}

namespace {

Future<int> doubled(Future<int> x) {
  const int value = co_await x;
  co_return 2 * value;
}
Future<void> kept_in(Future<int> x, int* place) { *place = co_await doubled(std::move(x)); }

}  // namespace

TEST(rpc_future, coroutines_go_on_where_what_they_await_is_kept) {
  Promise<int> promise;
  int place = 0;
  auto future = kept_in(promise.future(), &place);
  EXPECT_FALSE(future.ready());
  promise.set(21);
  future.get();
  EXPECT_EQ(place, 42);
}

TEST(rpc_future, an_error_comes_out_of_co_await) {
  Promise<int> promise;
  auto future = doubled(promise.future());
  promise.fail(std::make_exception_ptr(ResourceError("no memory")));
  EXPECT_EQ(text_of<ResourceError>([&] { future.get(); }), "no memory");
}

TEST(rpc_future, many_threads_keep_and_wait_at_once) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([] {
      for (int i = 0; i < 300; ++i) {
        Promise<int> promise;
        auto future = promise.future().then([](int x) { return x + 1; });
        std::thread keeper([&] { promise.set(i); });
        EXPECT_EQ(future.get(), i + 1);
        keeper.join();
      }
    });
  for (auto& thread : threads) thread.join();
}

}  // namespace trireme::rpc_future_test
