// SPDX-License-Identifier: Apache-2.0
#include "trireme/tensor/device.h"

#include <ATen/ops/arange.h>
#include <gtest/gtest.h>

#include "tests/support/ranks.h"
#include "trireme/tensor/device/kind.h"

namespace trireme::device_test {
namespace {

using trireme::testing::outcome_of;

TEST(tensor_device, the_cpu_is_one_device_whatever_the_rank) {
  EXPECT_EQ(choose_device("cpu", 5), at::Device(at::kCPU));
  EXPECT_EQ(device_count(at::kCPU), 1);
  EXPECT_FALSE(is_asynchronous(at::kCPU));
}

TEST(tensor_device, auto_is_the_cpu_where_libtorch_sees_no_gpu) {
  const bool gpu = device_count(at::kCUDA) > 0;
  EXPECT_EQ(choose_device("auto", 0).type(), gpu ? at::kCUDA : at::kCPU);
}

TEST(tensor_device, what_is_not_there_is_refused_in_one_sentence) {
  if (device_count(at::kCUDA) > 0) GTEST_SKIP() << "LibTorch sees a GPU";
  for (const char* wanted : {"cuda", "cuda:3"}) {
    const std::string said = outcome_of([&] { choose_device(wanted, 0); });
    EXPECT_EQ(said.find("UsageError: device '" + std::string(wanted) + "': "), 0u) << said;
    EXPECT_NE(said.find("CUDA"), std::string::npos) << said;
  }
}

TEST(tensor_device, words_that_are_no_device_are_refused_with_the_choices) {
  for (const char* wanted :
       {"", "gpu", "cuda:", "cuda:-1", "cuda:x", "cuda:1 ", "CUDA", "xla", "meta"})
    EXPECT_EQ(outcome_of([&] { choose_device(wanted, 0); }),
              "UsageError: device '" + std::string(wanted) +
                  "': use auto, cpu, cuda, cuda:N or privateuseone");
}

TEST(tensor_device, on_the_cpu_streams_and_events_have_no_effect) {
  const DeviceStream stream = DeviceStream::another(at::kCPU);
  const StreamScope scope(stream);
  const DeviceEvent event = stream.record();
  EXPECT_TRUE(event.reached());
  EXPECT_TRUE(event.wait_on_host(Deadline::after(Duration::zero())));
  stream.wait(event);
  stream.synchronize();
  const at::Tensor from = at::arange(6), to = host_buffer({6}, at::kLong, at::kCPU);
  copy_in_stream_order(to, from);
  stream.uses(to);
  EXPECT_TRUE(to.equal(from));
  EXPECT_FALSE(memory_use(at::kCPU).has_value());
}

TEST(tensor_device, a_kind_that_somebody_adds_says_what_it_knows) {
  struct Mine final : DeviceKind {
    std::string why_none() const override { return "plug one in"; }
  };
  const auto before = device_kind(at::kXPU);
  set_device_kind(at::kXPU, std::make_shared<Mine>());
  EXPECT_EQ(device_kind(at::kXPU)->why_none(), "plug one in");
  set_device_kind(at::kXPU, before);
}

}  // namespace
}  // namespace trireme::device_test
