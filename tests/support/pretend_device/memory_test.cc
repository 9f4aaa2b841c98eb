// SPDX-License-Identifier: Apache-2.0
#include <ATen/ATen.h>
#include <c10/core/StreamGuard.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <thread>

#include "tests/support/forked.h"
#include "tests/support/pretend_device/pretend_device.h"
#include "trireme/train/balance/out_of_memory.h"

namespace trireme::pretend::memory_test {
namespace {

using testing::ChildEnd;
using testing::ForkedChild;

at::TensorOptions floats(int index = 0) {
  return at::TensorOptions(at::kFloat).device(device(index));
}

at::Tensor kib(int64_t n, int index = 0) { return at::empty({n * 256}, floats(index)); }

// A pointer that the compiler knows nothing about.
volatile float* address_of(const at::Tensor& t) { return static_cast<float*>(t.data_ptr()); }

}  // namespace

TEST(support_pretend_device_memory, cannot_be_read_by_its_address) {
  const at::Tensor x = at::ones({4}, floats());
  ForkedChild child(ChildEnd::exit_at_once,
                    [&] { return *address_of(x) == 1 ? "it was read" : "other bytes were read"; });
  EXPECT_EQ(child.ended(), "the child died of signal 11");
}

TEST(support_pretend_device_memory, cannot_be_written_by_its_address) {
  at::Tensor x = at::ones({4}, floats());
  ForkedChild child(ChildEnd::exit_at_once, [&] {
    address_of(x)[3] = 2;
    return "it was written";
  });
  EXPECT_EQ(child.ended(), "the child died of signal 11");
  EXPECT_TRUE(x.cpu().equal(at::ones({4})));
}

TEST(support_pretend_device_memory, cannot_be_read_through_a_view_or_by_a_kernel_of_the_cpu) {
  const at::Tensor x = at::ones({4, 4}, floats(2));
  ForkedChild child(ChildEnd::exit_at_once, [&] {
    const at::Tensor taken = at::from_blob(x[2].data_ptr(), {4}, at::kFloat);
    return std::to_string(taken.sum().item<float>());
  });
  EXPECT_EQ(child.ended(), "the child died of signal 11");
}

TEST(support_pretend_device_memory, crosses_to_the_device_and_back) {
  const at::Tensor x = at::arange(1000, at::kFloat);
  for (int index = 0; index < kDevices; ++index) {
    const at::Tensor y = x.to(device(index));
    EXPECT_EQ(y.device(), device(index));
    EXPECT_TRUE(y.cpu().equal(x));
  }
}

TEST(support_pretend_device_memory, may_be_anothers_where_its_device_is_named) {
  const at::Tensor x = at::arange(6, at::kFloat).to(device(1));
  const at::Tensor same = at::from_blob(
      x.data_ptr(), {2, 3}, {3, 1}, [x](void*) {}, x.options(), device(1));
  same.add_(1);
  EXPECT_TRUE(x.cpu().equal(at::arange(1, 7, at::kFloat)));
}

TEST(support_pretend_device_memory, is_not_a_number_until_somebody_writes_it) {
  EXPECT_TRUE(at::empty({1000}, floats()).isnan().all().item<bool>());
  at::ones({1000}, floats());
  EXPECT_TRUE(at::empty({1000}, floats()).isnan().all().item<bool>());
}

TEST(support_pretend_device_memory, that_was_freed_goes_to_its_own_stream_at_once) {
  synchronize();
  Hold hold(default_stream());
  at::Tensor x = kib(64);
  void* const place = x.data_ptr();
  x.reset();
  const at::Tensor again = kib(64);
  EXPECT_EQ(again.data_ptr(), place);
}

TEST(support_pretend_device_memory, that_was_freed_goes_to_others_when_its_stream_has_drained) {
  synchronize();
  const c10::Stream side = stream_from_pool();
  at::Tensor x = kib(64);
  void* const place = x.data_ptr();
  {
    Hold hold(default_stream());
    x.reset();
    const c10::StreamGuard guard(side);
    const at::Tensor other = kib(64);
    EXPECT_NE(other.data_ptr(), place);
  }
  synchronize();
  const c10::StreamGuard guard(side);
  const at::Tensor other = kib(64);
  EXPECT_EQ(other.data_ptr(), place);
}

TEST(support_pretend_device_memory, that_a_stream_was_recorded_on_waits_for_it) {
  synchronize();
  const c10::Stream side = stream_from_pool();
  at::Tensor x = kib(64).fill_(3), seen = x;
  void* const place = x.data_ptr();
  Hold hold(side);
  x.record_stream(side);
  seen.reset();
  x.reset();
  at::Tensor next = kib(64);  // of the same stream as x
  EXPECT_NE(next.data_ptr(), place);
  next.reset();
  hold.release();
  synchronize();
  EXPECT_EQ(kib(64).data_ptr(), place);
}

TEST(support_pretend_device_memory, fails_at_its_limit_as_a_gpu_does) {
  synchronize();
  const MemoryLimit limit(size_t{4} << 20, 3);
  at::Tensor x = kib(3 * 1024, 3);
  const uint64_t before = memory_counts(3).out_of_memory;
  try {
    kib(2 * 1024, 3);
    ADD_FAILURE() << "5 MiB of 4 were taken";
  } catch (const c10::OutOfMemoryError& e) {
    EXPECT_NE(std::string(e.what()).find(
                  "out of memory. Tried to allocate 2.00 MiB (GPU 3; 4.00 MiB total capacity; "
                  "3.00 MiB already allocated; 1.00 MiB free; 3.00 MiB reserved in total)"),
              std::string::npos)
        << e.what();
    EXPECT_TRUE(is_out_of_memory(e));  // what a rank that backs off asks
  }
  EXPECT_EQ(memory_counts(3).out_of_memory, before + 1);
  x.reset();
  EXPECT_NO_THROW(kib(4 * 1024, 3));  // in one piece again
}

TEST(support_pretend_device_memory, of_other_streams_is_waited_for_before_it_fails) {
  synchronize();
  const MemoryLimit limit(size_t{1} << 20, 3);
  const c10::Stream side = stream_from_pool(3);
  at::Tensor x = kib(1024, 3);
  auto hold = std::make_unique<Hold>(default_stream(3));
  x.reset();
  const c10::StreamGuard guard(side);
  std::thread later([&] { hold.reset(); });
  EXPECT_NO_THROW(kib(1024, 3));
  later.join();
}

TEST(support_pretend_device_memory, is_counted_now_and_at_its_peak) {
  synchronize();
  reset_memory_peaks(1);
  const MemoryCounts before = memory_counts(1);
  {
    const at::Tensor a = kib(10, 1), b = kib(20, 1);
    EXPECT_EQ(memory_counts(1).allocated - before.allocated, 30u * 1024);
  }
  const at::Tensor c = at::empty({1}, floats(1));
  EXPECT_EQ(memory_counts(1).allocated - before.allocated, 512u);
  EXPECT_EQ(memory_counts(1).peak_allocated - before.allocated, 30u * 1024);
  EXPECT_EQ(memory_counts(2).allocated, 0u);  // each device has its own
}

TEST(support_pretend_device_memory, that_waits_for_a_stream_is_reserved) {
  synchronize();
  const MemoryCounts before = memory_counts(1);
  Hold hold(default_stream(1));
  kib(10, 1).reset();
  EXPECT_EQ(memory_counts(1).allocated, before.allocated);
  EXPECT_EQ(memory_counts(1).reserved, before.reserved + 10 * 1024);
}

}  // namespace trireme::pretend::memory_test
