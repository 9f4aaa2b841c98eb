// SPDX-License-Identifier: Apache-2.0
#include <ATen/ATen.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <gtest/gtest-spi.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/pretend_device/delays.h"
#include "tests/support/pretend_device/pretend_device.h"
#include "tests/support/pretend_device/seeds.h"

namespace trireme::pretend::streams_test {
namespace {

c10::Event new_event() { return c10::Event(c10::kPrivateUse1); }

std::vector<Delay> delays(uint64_t seed, int64_t stream) {
  std::vector<Delay> all;
  for (uint64_t n = 0; n < 1000; ++n) all.push_back(delay_of(seed, 0, stream, n));
  return all;
}

}  // namespace

TEST(support_pretend_device_streams, are_as_late_as_their_seed_says) {
  EXPECT_EQ(delays(7, 1), delays(7, 1));
  EXPECT_NE(delays(7, 1), delays(8, 1));
  EXPECT_NE(delays(7, 1), delays(7, 2));
  const std::vector<Delay> drawn = delays(7, 1);
  const auto until_waited_for =
      std::count_if(drawn.begin(), drawn.end(), [](const Delay& d) { return d.until_waited_for; });
  const auto never = std::count(drawn.begin(), drawn.end(), Delay{});
  EXPECT_GT(until_waited_for, 400);
  EXPECT_LT(until_waited_for, 600);
  EXPECT_GT(never, 150);
  EXPECT_LT(never, 350);
  EXPECT_EQ(delays(0, 1), std::vector<Delay>(1000));
}

TEST(support_pretend_device_streams, do_their_work_also_where_nobody_waits) {
  for_some_seeds(5, [] {
    const c10::Stream side = stream_from_pool();
    c10::Event event = new_event();
    std::atomic<int> done{0};
    for (int i = 0; i < 3; ++i) launch(side, [&] { ++done; });
    event.record(side);
    while (!event.query()) std::this_thread::yield();
    EXPECT_EQ(done, 3);
  });
}

TEST(support_pretend_device_streams, begin_anew_with_each_seed) {
  std::vector<int64_t> ids;
  for_seeds(3, [&] { ids.push_back(stream_from_pool(1).id()); });
  EXPECT_EQ(ids, (std::vector<int64_t>{1, 1, 1}));
}

TEST(support_pretend_device_streams, fail_by_the_name_of_their_seed) {
  int run = 0;
  EXPECT_NONFATAL_FAILURE(for_seeds(3, [&] { TORCH_CHECK(++run != 2, "the second"); }), "seed 2");
  EXPECT_EQ(run, 3);
}

TEST(support_pretend_device_streams, of_the_pool_come_in_turn) {
  std::set<int64_t> ids;
  for (int i = 0; i < 20; ++i) ids.insert(stream_from_pool().id());
  EXPECT_EQ(ids, (std::set<int64_t>{1, 2, 3, 4, 5, 6, 7, 8}));
}

TEST(support_pretend_device_streams, have_work_until_it_is_done) {
  const c10::Stream side = stream_from_pool();
  EXPECT_TRUE(side.query());
  Hold hold(side);
  EXPECT_FALSE(side.query());
  EXPECT_TRUE(default_stream().query());
  hold.release();
  const uint64_t before = counters().host_waits;
  side.synchronize();
  EXPECT_TRUE(side.query());
  EXPECT_EQ(counters().host_waits, before + 1);
}

TEST(support_pretend_device_streams, come_to_an_event_when_all_before_it_is_done) {
  const c10::Stream side = stream_from_pool();
  c10::Event event = new_event();
  EXPECT_TRUE(event.query());  // never recorded
  Hold hold(side);
  event.record(side);
  EXPECT_FALSE(event.query());
  hold.release();
  side.synchronize();
  EXPECT_TRUE(event.query());
}

TEST(support_pretend_device_streams, wait_for_an_event_of_another) {
  const c10::Stream first = stream_from_pool(), second = stream_from_pool();
  c10::Event event = new_event();
  Hold hold(first);
  event.record(first);
  second.wait(event);
  EXPECT_FALSE(second.query());
  hold.release();
  second.synchronize();
  EXPECT_TRUE(event.query());
}

TEST(support_pretend_device_streams, wait_for_an_event_as_it_was_when_they_were_told_to) {
  const c10::Stream first = stream_from_pool(), second = stream_from_pool();
  c10::Event event = new_event();
  event.record(first);
  first.synchronize();
  second.wait(event);
  Hold hold(first);
  event.record(first);  // again: not what second waits for
  second.synchronize();
  EXPECT_FALSE(event.query());
}

TEST(support_pretend_device_streams, wait_for_an_event_that_is_gone) {
  const c10::Stream first = stream_from_pool(), second = stream_from_pool();
  Hold hold(first);
  {
    c10::Event event = new_event();
    event.record(first);
    second.wait(event);
  }
  EXPECT_FALSE(second.query());
  hold.release();
  second.synchronize();
  EXPECT_TRUE(first.query());
}

TEST(support_pretend_device_streams, wait_across_devices) {
  const c10::Stream there = default_stream(1), here = default_stream(0);
  c10::Event event = new_event();
  Hold hold(there);
  event.record(there);
  here.wait(event);
  EXPECT_FALSE(here.query());
  hold.release();
  here.synchronize();
  EXPECT_TRUE(there.query());
}

TEST(support_pretend_device_streams, are_current_in_one_thread_and_one_scope) {
  const c10::Stream side = stream_from_pool(2);
  const c10::impl::VirtualGuardImpl impl(c10::kPrivateUse1);
  {
    const c10::StreamGuard guard(side);
    EXPECT_EQ(impl.getStream(device(2)), side);
    EXPECT_EQ(impl.getStream(device(1)), default_stream(1));
    EXPECT_EQ(impl.getDevice(), device(2));
    std::thread([&] {
      EXPECT_EQ(impl.getStream(device(2)), default_stream(2));
      EXPECT_EQ(impl.getDevice(), device(0));
    }).join();
  }
  EXPECT_EQ(impl.getStream(device(2)), default_stream(2));
  EXPECT_EQ(impl.getDevice(), device(0));
}

TEST(support_pretend_device_streams, and_devices_that_are_not_there_are_refused) {
  try {
    const c10::DeviceGuard guard(c10::Device(c10::kPrivateUse1, kDevices));
    ADD_FAILURE() << "device 4 of 4";
  } catch (const c10::Error& e) {
    EXPECT_NE(std::string(e.what()).find("there is no pretend device 4; there are 4"),
              std::string::npos);
  }
  EXPECT_THROW(at::empty({1}, at::TensorOptions().device(c10::Device(c10::kPrivateUse1, 9))),
               c10::Error);
  const c10::Stream nowhere(c10::Stream::UNSAFE, device(0), 99);
  EXPECT_THROW(nowhere.query(), c10::Error);
}

}  // namespace trireme::pretend::streams_test
