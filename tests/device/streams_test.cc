// SPDX-License-Identifier: Apache-2.0
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tests/support/pretend_device/pretend_device.h"
#include "tests/support/pretend_device/seeds.h"
#include "tests/support/ranks.h"
#include "trireme/tensor/device.h"

// tensor/device.h on a device whose streams are late.
namespace trireme::device_streams_test {
namespace {

using trireme::testing::outcome_of;

at::Tensor numbers() { return at::arange(1000, at::kFloat); }

TEST(device_streams, a_device_that_a_library_added_is_chosen_by_its_number_or_the_ranks) {
  EXPECT_EQ(choose_device("privateuseone", 2), pretend::device(2));
  EXPECT_EQ(choose_device("privateuseone:1", 2), pretend::device(1));
  EXPECT_TRUE(is_asynchronous(pretend::device()));
  EXPECT_EQ(device_count(at::kPrivateUse1), 4);
  EXPECT_EQ(
      outcome_of([] { choose_device("privateuseone:7", 0); }),
      "UsageError: device 'privateuseone:7' is not there: this process sees 4, privateuseone:0 "
      "to privateuseone:3");
  const std::string said = outcome_of([] { choose_device("privateuseone", 4); });
  EXPECT_NE(said.find("start as many ranks on a host as it has devices"), std::string::npos)
      << said;
}

TEST(device_streams, the_current_device_is_what_it_was_afterwards) {
  const at::Device before = with_index(at::kPrivateUse1);
  {
    const CurrentDevice current(pretend::device(3));
    EXPECT_EQ(with_index(at::kPrivateUse1), pretend::device(3));
    EXPECT_EQ(DeviceStream::current(at::kPrivateUse1).device(), pretend::device(3));
  }
  EXPECT_EQ(with_index(at::kPrivateUse1), before);
}

TEST(device_streams, an_event_is_reached_when_the_stream_has_come_so_far_and_not_before) {
  const CurrentDevice current(pretend::device());
  pretend::Hold hold(pretend::default_stream());
  const at::Tensor there = host_buffer({1000}, at::kFloat, pretend::device());
  const at::Tensor on = at::empty({1000}, at::TensorOptions().device(pretend::device()));
  there.copy_(numbers());
  copy_in_stream_order(on, there);
  const DeviceEvent event = DeviceStream::current(pretend::device()).record();
  EXPECT_FALSE(event.reached());
  EXPECT_FALSE(event.wait_on_host(Deadline::after(std::chrono::milliseconds(5))));
  hold.release();
  EXPECT_TRUE(event.wait_on_host(Deadline::after(std::chrono::seconds(30))));
  EXPECT_TRUE(pretend::bytes_now(on).equal(numbers()));
}

TEST(device_streams, a_copy_to_the_host_and_back_on_another_stream_needs_the_events_alone) {
  pretend::for_some_seeds(8, [] {
    const at::Device device = pretend::device();
    const CurrentDevice current(device);
    const DeviceStream computing = DeviceStream::current(device),
                       copying = DeviceStream::another(device);
    const at::Tensor on = host_buffer({1000}, at::kFloat, device),
                     off = host_buffer({1000}, at::kFloat, device);
    on.copy_(numbers());
    at::Tensor t = at::empty({1000}, at::TensorOptions().device(device));
    copy_in_stream_order(t, on);
    copying.wait(computing.record());
    DeviceEvent there;
    {
      const StreamScope scope(copying);
      copy_in_stream_order(off, t);
      there = copying.record();
    }
    copying.uses(t);
    t = at::Tensor();
    ASSERT_TRUE(there.wait_on_host(Deadline::after(std::chrono::seconds(30))));
    EXPECT_TRUE(off.equal(numbers()));
  });
}

TEST(device_streams, ordering_streams_never_blocks_the_host) {
  const at::Device device = pretend::device();
  const CurrentDevice current(device);
  const pretend::NoHostWaits none;
  const DeviceStream other = DeviceStream::another(device);
  const at::Tensor on = host_buffer({1000}, at::kFloat, device);
  const at::Tensor t = at::empty({1000}, at::TensorOptions().device(device));
  copy_in_stream_order(t, on);
  other.wait(DeviceStream::current(device).record());
  other.uses(t);
  EXPECT_TRUE(other.record().wait_on_host(Deadline::after(std::chrono::seconds(30))));
}

}  // namespace
}  // namespace trireme::device_streams_test
