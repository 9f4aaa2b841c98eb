// SPDX-License-Identifier: Apache-2.0
#include <ATen/ATen.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <thread>

#include "tests/support/pretend_device/pretend_device.h"

// Faults that people make with streams, one in each test: the program without it is right under
// every seed, and the program with it is wrong under some.
namespace trireme::pretend::planted_faults_test {
namespace {

constexpr int kSeeds = 20;
constexpr int64_t kN = 4096;

at::Tensor numbers() { return at::arange(kN, at::kFloat); }
at::Tensor on_device(int index = 0) { return numbers().to(device(index)); }

/// Whether the numbers were right, with the fault or without.
using Program = std::function<bool(bool faulty)>;

void expect_found(const Program& program) {
  int wrong = 0;
  for_seeds(kSeeds, [&] {
    EXPECT_TRUE(program(false)) << "without the fault";
    synchronize();
    wrong += !program(true);
    synchronize();
  });
  ::testing::Test::RecordProperty("seeds", wrong);
  EXPECT_GT(wrong, 0) << "the fault was never seen";
}

// `second` goes on after all that `first` has to do now.
void order(const c10::Stream& first, const c10::Stream& second) {
  c10::Event event(c10::kPrivateUse1);
  event.record(first);
  second.wait(event);
}

}  // namespace

TEST(support_pretend_device_planted_faults, a_missing_event_after_a_prefetch_is_found) {
  expect_found([](bool faulty) {
    const c10::Stream side = stream_from_pool(), main = default_stream();
    const at::Tensor host = pinned(numbers());
    at::Tensor batch;
    {
      const c10::StreamGuard guard(side);
      batch = host.to(device(), true);
    }
    batch.record_stream(main);
    if (!faulty) order(side, main);
    return batch.mul(2).cpu().equal(numbers() * 2);
  });
}

TEST(support_pretend_device_planted_faults,
     a_missing_event_before_memory_is_written_again_is_found) {
  expect_found([](bool faulty) {
    const c10::Stream side = stream_from_pool(), main = default_stream();
    at::Tensor bucket = on_device(), sent = at::zeros_like(bucket);
    order(main, side);
    {
      const c10::StreamGuard guard(side);
      sent.copy_(bucket);  // as a collective would
    }
    if (!faulty) order(side, main);
    bucket.zero_();
    side.synchronize();
    return sent.cpu().equal(numbers());
  });
}

TEST(support_pretend_device_planted_faults, memory_freed_while_another_stream_reads_it_is_found) {
  expect_found([](bool faulty) {
    const c10::Stream side = stream_from_pool();
    at::Tensor bucket = on_device(), sent = at::zeros_like(bucket);
    synchronize();
    {
      const c10::StreamGuard guard(side);
      sent.copy_(bucket);
    }
    if (!faulty) bucket.record_stream(side);
    bucket.reset();
    const at::Tensor next = at::zeros({kN}, sent.options());  // of the same stream: the same bytes
    side.synchronize();
    return sent.cpu().equal(numbers());
  });
}

TEST(support_pretend_device_planted_faults, memory_recorded_on_the_wrong_stream_is_found) {
  expect_found([](bool faulty) {
    const c10::Stream side = stream_from_pool(), other = stream_from_pool();
    at::Tensor bucket = on_device(), sent = at::zeros_like(bucket);
    synchronize();
    {
      const c10::StreamGuard guard(side);
      sent.copy_(bucket);
    }
    bucket.record_stream(faulty ? other : side);
    bucket.reset();
    const at::Tensor next = at::zeros({kN}, sent.options());
    side.synchronize();
    return sent.cpu().equal(numbers());
  });
}

TEST(support_pretend_device_planted_faults, an_event_that_the_wrong_stream_waits_for_is_found) {
  expect_found([](bool faulty) {
    const c10::Stream loads = stream_from_pool(), sends = stream_from_pool(),
                      main = default_stream();
    const at::Tensor host = pinned(numbers());
    at::Tensor batch = at::zeros({kN}, at::TensorOptions(at::kFloat).device(device()));
    at::Tensor sent = at::zeros_like(batch);
    synchronize();
    {
      const c10::StreamGuard guard(loads);
      batch.copy_(host, true);
    }
    order(loads, faulty ? main : sends);
    {
      const c10::StreamGuard guard(sends);
      sent.copy_(batch);
    }
    sends.synchronize();
    loads.synchronize();
    return sent.cpu().equal(numbers());
  });
}

TEST(support_pretend_device_planted_faults, a_collective_read_before_its_wait_is_found) {
  expect_found([](bool faulty) {
    const c10::Stream main = default_stream(), comm = stream_from_pool();
    at::Tensor gradient = on_device();
    order(main, comm);
    launch(comm, [sum = for_kernels(gradient)] { sum.mul_(2); });  // of two equal ranks
    if (!faulty) order(comm, main);
    const bool right = gradient.add(1).cpu().equal(numbers() * 2 + 1);
    comm.synchronize();
    return right;
  });
}

TEST(support_pretend_device_planted_faults, an_event_recorded_before_its_work_is_found) {
  expect_found([](bool faulty) {
    const c10::Stream side = stream_from_pool(), main = default_stream();
    const at::Tensor from = on_device();
    at::Tensor to = at::zeros_like(from);
    order(main, side);
    c10::Event event(c10::kPrivateUse1);
    {
      const c10::StreamGuard guard(side);
      if (faulty) event.record(side);  // before the work that it stands for
      to.copy_(from);
      if (!faulty) event.record(side);
    }
    main.wait(event);
    const bool right = to.add(1).cpu().equal(numbers() + 1);
    side.synchronize();
    return right;
  });
}

TEST(support_pretend_device_planted_faults, an_event_of_the_round_before_is_found) {
  expect_found([](bool faulty) {
    const c10::Stream side = stream_from_pool(), main = default_stream();
    at::Tensor buffer = at::zeros({kN}, at::TensorOptions(at::kFloat).device(device()));
    synchronize();
    c10::Event event(c10::kPrivateUse1);
    bool right = true;
    for (int round = 1; round <= 3; ++round) {
      const at::Tensor host = pinned(numbers() * round);
      order(main, side);
      {
        const c10::StreamGuard guard(side);
        buffer.copy_(host, true);
      }
      if (faulty)
        event.recordOnce(side);
      else
        event.record(side);
      main.wait(event);
      right = right && buffer.add(0).cpu().equal(numbers() * round);
    }
    side.synchronize();
    return right;
  });
}

TEST(support_pretend_device_planted_faults, pinned_memory_filled_again_too_early_is_found) {
  expect_found([](bool faulty) {
    at::Tensor slab = pinned(numbers());
    const at::Tensor batch = slab.to(device(), true);
    if (!faulty) default_stream().synchronize();
    slab.zero_();  // the next batch
    return batch.cpu().equal(numbers());
  });
}

TEST(support_pretend_device_planted_faults, a_snapshot_read_before_it_has_come_is_found) {
  expect_found([](bool faulty) {
    const at::Tensor weights = on_device();
    at::Tensor snapshot = pinned(at::zeros({kN}));
    snapshot.copy_(weights, true);
    c10::Event event(c10::kPrivateUse1);
    event.record(default_stream());
    while (!faulty && !event.query()) std::this_thread::yield();
    const bool right = snapshot.equal(numbers());
    synchronize();
    return right;
  });
}

TEST(support_pretend_device_planted_faults, memory_nobody_has_written_is_found) {
  const auto gradients = [](bool faulty) {
    const at::TensorOptions options = at::TensorOptions(at::kFloat).device(device());
    at::Tensor sum = faulty ? at::empty({kN}, options) : at::zeros({kN}, options);
    return sum.add_(on_device()).cpu().equal(numbers());
  };
  EXPECT_TRUE(gradients(false));
  EXPECT_FALSE(gradients(true));
}

TEST(support_pretend_device_planted_faults, a_hook_that_blocks_is_found) {
  const auto backward = [](const std::function<void(const at::Tensor&)>& in_hook) -> std::string {
    at::Tensor x = on_device().requires_grad_();
    x.register_hook([&](const at::Tensor& gradient) {
      const NoHostWaits scope;
      in_hook(gradient);
    });
    try {
      x.mul(2).sum().backward();
    } catch (const c10::Error& e) {
      return e.what_without_backtrace();
    }
    return "";
  };
  const c10::Stream side = stream_from_pool();
  const auto names = [&](const std::string& what,
                         const std::function<void(const at::Tensor&)>& hook) {
    const std::string text = backward(hook);
    EXPECT_NE(text.find(what), std::string::npos) << text;
    EXPECT_NE(text.find("blocks this thread on a stream"), std::string::npos) << text;
  };
  EXPECT_EQ(backward([&](const at::Tensor& g) {
              g.add(1);
              order(default_stream(), side);
              g.to(at::kCPU, true);
            }),
            "");
  names("aten::_local_scalar_dense", [](const at::Tensor& g) { g.sum().item(); });
  names("Stream::synchronize()", [](const at::Tensor&) { default_stream().synchronize(); });
  names("a copy to the host", [](const at::Tensor& g) { g.cpu(); });
  names("a copy to the device", [](const at::Tensor& g) { numbers().to(g.device()); });
  names("asking again and again", [&](const at::Tensor&) {
    Hold late(side);
    launch(side, [] {});
    c10::Event event(c10::kPrivateUse1);
    event.record(side);
    while (!event.query()) std::this_thread::sleep_for(std::chrono::microseconds(1));
  });
  EXPECT_EQ(backward([&](const at::Tensor&) {  // once for each gradient, say
              Hold late(side);
              launch(side, [] {});
              c10::Event event(c10::kPrivateUse1);
              event.record(side);
              for (int i = 0; i < 100; ++i) EXPECT_FALSE(event.query());
            }),
            "");
}

TEST(support_pretend_device_planted_faults, a_hook_that_blocks_is_counted) {
  const auto waits = [](const std::function<void(const at::Tensor&)>& in_hook) {
    at::Tensor x = on_device().requires_grad_();
    uint64_t counted = 0;
    x.register_hook([&](const at::Tensor& gradient) {
      const uint64_t before = host_waits_of_this_thread();
      in_hook(gradient);
      counted = host_waits_of_this_thread() - before;
    });
    x.sum().backward();
    return counted;
  };
  EXPECT_EQ(waits([](const at::Tensor& g) { g.mul(2).sum(); }), 0u);
  EXPECT_EQ(waits([](const at::Tensor& g) { g.isfinite().all().item<bool>(); }), 1u);
}

TEST(support_pretend_device_planted_faults, a_copy_without_pinning_is_found) {
  const auto staged = [](bool faulty) {
    const uint64_t before = counters().staged_copies;
    const at::Tensor host = faulty ? numbers() : pinned(numbers());
    EXPECT_TRUE(host.to(device(), true).cpu().equal(numbers()));
    return counters().staged_copies - before;
  };
  EXPECT_EQ(staged(false), 0u);
  EXPECT_EQ(staged(true), 1u);
}

TEST(support_pretend_device_planted_faults, a_rank_on_the_wrong_device_is_found) {
  const auto rank_two = [](bool faulty) {
    std::optional<c10::DeviceGuard> current;
    if (!faulty) current.emplace(device(2));
    const at::Tensor mine = at::ones({kN}, at::TensorOptions(at::kFloat).device(c10::kPrivateUse1));
    return (on_device(2) + mine).cpu().equal(numbers() + 1);
  };
  EXPECT_TRUE(rank_two(false));
  EXPECT_THROW(rank_two(true), c10::Error);
}

// A pointer of the device taken for the CPU's: memory_test.cc, where the process dies of it.

}  // namespace trireme::pretend::planted_faults_test
