// SPDX-License-Identifier: Apache-2.0
#include <ATen/ATen.h>
#include <c10/core/StreamGuard.h>
#include <gtest/gtest.h>

#include <vector>

#include "tests/support/pretend_device/pretend_device.h"
#include "tests/support/pretend_device/seeds.h"

namespace trireme::pretend::copies_test {
namespace {

const int64_t kN = 5000;

at::Tensor numbers() { return at::arange(kN, at::kFloat); }

}  // namespace

TEST(support_pretend_device_copies, of_pinned_memory_are_late_if_they_need_not_block) {
  const at::Tensor host = pinned(numbers());
  const Counters before = counters();
  Hold hold(default_stream());
  const at::Tensor there = host.to(device(), /*non_blocking=*/true);
  EXPECT_TRUE(bytes_now(there).isnan().all().item<bool>());
  hold.release();
  EXPECT_EQ(counters().host_waits, before.host_waits);
  EXPECT_EQ(counters().async_copies, before.async_copies + 1);
  EXPECT_EQ(counters().staged_copies, before.staged_copies);
  EXPECT_TRUE(there.cpu().equal(numbers()));
}

TEST(support_pretend_device_copies, take_what_pinned_memory_holds_when_they_run) {
  at::Tensor host = pinned(numbers());
  Hold hold(default_stream());
  const at::Tensor there = host.to(device(), true);
  host.fill_(7);
  hold.release();
  EXPECT_TRUE(there.cpu().equal(at::full({kN}, 7.f)));
}

TEST(support_pretend_device_copies, of_other_memory_are_staged_and_counted) {
  at::Tensor host = numbers();
  const Counters before = counters();
  Hold hold(default_stream());
  const at::Tensor there = host.to(device(), true);
  host.fill_(7);
  hold.release();
  EXPECT_EQ(counters().staged_copies, before.staged_copies + 1);
  EXPECT_EQ(counters().async_copies, before.async_copies);
  EXPECT_EQ(counters().host_waits, before.host_waits);
  EXPECT_TRUE(there.cpu().equal(numbers()));
}

TEST(support_pretend_device_copies, block_unless_they_are_told_not_to) {
  const Counters before = counters();
  const at::Tensor there = pinned(numbers()).to(device());
  EXPECT_EQ(counters().host_waits, before.host_waits + 1);
  EXPECT_TRUE(bytes_now(there).equal(numbers()));
  EXPECT_TRUE(there.cpu().equal(numbers()));
  EXPECT_EQ(counters().host_waits, before.host_waits + 2);
}

TEST(support_pretend_device_copies, to_the_host_come_into_pinned_memory_late) {
  const at::Tensor there = numbers().to(device());
  const Counters before = counters();
  Hold hold(default_stream());
  const at::Tensor host = there.to(at::kCPU, /*non_blocking=*/true);
  EXPECT_TRUE(host.is_pinned(c10::kPrivateUse1));
  host.fill_(0);
  EXPECT_EQ(host.sum().item<float>(), 0);
  hold.release();
  EXPECT_EQ(counters().host_waits, before.host_waits);
  synchronize();
  EXPECT_TRUE(host.equal(numbers()));
}

TEST(support_pretend_device_copies, to_memory_of_the_host_that_is_not_pinned_block) {
  const at::Tensor there = numbers().to(device());
  const Counters before = counters();
  at::Tensor host = at::zeros({kN});
  host.copy_(there, /*non_blocking=*/true);
  EXPECT_EQ(counters().staged_copies, before.staged_copies + 1);
  EXPECT_EQ(counters().host_waits, before.host_waits + 1);
  EXPECT_TRUE(host.equal(numbers()));
}

TEST(support_pretend_device_copies, on_one_device_are_late) {
  const at::Tensor from = numbers().to(device());
  at::Tensor to = at::zeros({kN}, from.options());
  Hold hold(default_stream());
  to.copy_(from);
  EXPECT_EQ(bytes_now(to).sum().item<float>(), 0);
  hold.release();
  EXPECT_TRUE(to.cpu().equal(numbers()));
}

TEST(support_pretend_device_copies, between_devices_are_in_order_with_both) {
  const at::Tensor from = numbers().to(device(0));
  for (const int held : {0, 1}) {
    Hold hold(default_stream(held));
    const at::Tensor to = from.to(device(1));
    EXPECT_FALSE(default_stream(0).query());
    EXPECT_FALSE(default_stream(1).query());
    hold.release();
    EXPECT_TRUE(to.cpu().equal(numbers()));
  }
}

TEST(support_pretend_device_copies, convert_and_rearrange_as_the_cpus_do) {
  const at::Tensor x = at::arange(60, at::kFloat).view({5, 12});
  const auto check = [](const at::Tensor& host, at::ScalarType dtype) {
    for (const bool non_blocking : {false, true}) {
      const at::Tensor there = host.to(device(), dtype, non_blocking);
      EXPECT_TRUE(there.cpu().equal(host.to(dtype)));
      at::Tensor turned = at::zeros({12, 5}, at::TensorOptions(dtype).device(device())).t();
      turned.copy_(host, non_blocking);
      EXPECT_TRUE(turned.cpu().equal(host.to(dtype)));
      EXPECT_TRUE(there.to(at::kCPU, at::kDouble).equal(host.to(dtype).to(at::kDouble)));
      at::Tensor back = at::zeros({12, 5}, at::kInt).t();
      back.copy_(there, non_blocking);
      EXPECT_TRUE(back.equal(host.to(at::kInt)));
      EXPECT_TRUE(there.to(at::kHalf).to(device(1)).cpu().equal(host.to(dtype).to(at::kHalf)));
    }
  };
  check(x, at::kFloat);
  check(x, at::kBFloat16);
  check(x.view({12, 5}).t(), at::kDouble);
  check(pinned(x), at::kFloat);
  check(pinned(x), at::kHalf);
  check(x[0].expand({5, 12}), at::kFloat);
  at::Tensor one = at::zeros({5, 12}, x.options().device(device()));
  one.copy_(at::ones({12}));  // broadcast
  EXPECT_TRUE(one.cpu().equal(at::ones({5, 12})));
}

TEST(support_pretend_device_copies, keep_the_form_of_memory) {
  const at::Tensor x =
      at::arange(120, at::kFloat).view({2, 3, 4, 5}).contiguous(at::MemoryFormat::ChannelsLast);
  const at::Tensor there = x.to(device());
  EXPECT_EQ(there.strides(), x.strides());
  EXPECT_EQ(there.to(at::kCPU, true).strides(), x.strides());
  EXPECT_TRUE(there.cpu().equal(x));
}

TEST(support_pretend_device_copies, keep_pinned_memory_that_was_freed_until_they_are_done) {
  synchronize();
  const size_t before = pinned_bytes();
  at::Tensor host = pinned(numbers());
  EXPECT_GE(pinned_bytes() - before, kN * sizeof(float));
  Hold hold(default_stream());
  const at::Tensor there = host.to(device(), true);
  host.reset();
  EXPECT_EQ(pinned_bytes(), before);
  std::vector<at::Tensor> others;  // would be given the same bytes
  for (int i = 0; i < 8; ++i) others.push_back(pinned(at::zeros({kN})));
  hold.release();
  EXPECT_TRUE(there.cpu().equal(numbers()));
}

TEST(support_pretend_device_copies, know_pinned_memory_by_any_view_of_it) {
  const at::Tensor host = pinned(numbers()), there = host.to(device());
  EXPECT_TRUE(host.is_pinned(c10::kPrivateUse1));
  EXPECT_TRUE(host.narrow(0, 100, 10).is_pinned(c10::kPrivateUse1));
  EXPECT_FALSE(numbers().is_pinned(c10::kPrivateUse1));
  EXPECT_FALSE(there.is_pinned(c10::kPrivateUse1));
  EXPECT_TRUE(numbers().pin_memory(c10::kPrivateUse1).is_pinned(c10::kPrivateUse1));
  EXPECT_TRUE(host.pin_memory(c10::kPrivateUse1).is_same(host));
  EXPECT_THROW(there.pin_memory(c10::kPrivateUse1), c10::Error);
}

TEST(support_pretend_device_copies, are_right_under_every_seed) {
  for_some_seeds(10, [] {
    at::Tensor sum = at::zeros({kN}, at::TensorOptions(at::kFloat).device(device()));
    for (int i = 1; i <= 4; ++i) sum.add_(pinned(numbers() * i).to(device(), true));
    const at::Tensor back = sum.to(device(1)).to(at::kCPU, true);
    default_stream(1).synchronize();
    EXPECT_TRUE(back.equal(numbers() * 10));
  });
}

}  // namespace trireme::pretend::copies_test
