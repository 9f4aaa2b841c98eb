// SPDX-License-Identifier: Apache-2.0
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <map>
#include <mutex>

#include "tests/support/pretend_device/group.h"
#include "tests/support/pretend_device/seeds.h"
#include "trireme/comm/start/run.h"
#include "trireme/grad/hooks/adasum_hook.h"
#include "trireme/grad/hooks/cast_hook.h"
#include "trireme/grad/hooks/noise_scale_hook.h"

// Communication hooks that compute, on a device: they order streams and never block.
namespace trireme::device_adasum_test {
namespace {

using Results = std::map<int, at::Tensor>;

at::Tensor gradient(int64_t n, int rank, int bucket) {
  return (at::arange(n, at::kDouble) * 0.37 + rank * 1.1 + bucket).sin() * (1 + rank);
}

/// Two buckets, of two parameters with a gap between them, in shares that cut both.
at::Tensor reduced(Group group, at::Device device, at::ScalarType type, ReduceOp op,
                   const CommHook& hook) {
  constexpr int64_t first = 37, second = 101, at_second = 48, numel = 150;
  std::vector<at::Tensor> buffers;
  std::vector<std::vector<GradBucketPart>> parts;
  for (int b = 0; b < 2; ++b) {
    at::Tensor flat = at::zeros({numel}, type);
    flat.narrow(0, 0, first).copy_(gradient(first, group.rank(), b));
    flat.narrow(0, at_second, second).copy_(gradient(second, group.rank() + 3, b));
    flat = device.is_cpu() ? flat : pretend::pinned(flat).to(device, /*non_blocking=*/true);
    buffers.push_back(flat);
    parts.push_back({{0, "a", 0, flat.narrow(0, 0, first)},
                     {1, "b", at_second, flat.narrow(0, at_second, second)}});
  }
  std::vector<Work> works;
  {
    const pretend::NoHostWaits none;
    for (int b = 0; b < 2; ++b) {
      GradBucket bucket{b, b == 1, buffers[static_cast<size_t>(b)], &parts[static_cast<size_t>(b)]};
      works.push_back(hook(group, bucket, op));
    }
    // A device's results are waited for by its streams alone.
    if (!device.is_cpu())
      for (Work& w : works) w.wait();
  }
  if (device.is_cpu())
    for (Work& w : works) w.wait();
  return at::cat(buffers).cpu();
}

template <class Make>
Results results(int n, bool there, at::ScalarType type, ReduceOp op, const Make& make) {
  Results all;
  std::mutex mutex;
  const auto body = [&](const Group& group, at::Device device) {
    const at::Tensor mine = reduced(group, device, type, op, make());
    const std::lock_guard lock(mutex);
    all[group.rank()] = mine;
  };
  if (there)
    pretend::run_on_devices(n, body);
  else
    run_threads(n, [&](const Group& group) { body(group, at::kCPU); });
  return all;
}

}  // namespace

// Three products of each pair are added in another order than the CPU's, in float64: the result may
// have another last bit, the same on all ranks.
TEST(device_adasum, is_the_cpus_up_to_the_order_of_its_products_and_equal_on_all_ranks) {
  for (const int n : {1, 2, 4})
    for (const ReduceOp op : {ReduceOp::sum, ReduceOp::avg})
      for (const at::ScalarType type : {at::kFloat, at::kDouble}) {
        const auto make = [] { return adasum_hook()->hook(); };
        const Results here = results(n, false, type, op, make);
        const double near = type == at::kFloat ? 3e-7 : 1e-14;
        pretend::for_some_seeds(2, [&] {
          const Results there = results(n, true, type, op, make);
          for (const auto& [rank, t] : there) {
            EXPECT_TRUE(t.allclose(here.at(rank), near, near)) << n << " ranks, rank " << rank;
            EXPECT_TRUE(t.equal(there.at(0))) << n << " ranks, rank " << rank;
          }
        });
      }
}

TEST(device_adasum, zeros_leave_the_other_gradient_alone_and_what_is_not_finite_stays_so) {
  for (const bool finite : {true, false}) {
    const auto values = [&](bool there) {
      std::map<int, at::Tensor> all;
      std::mutex mutex;
      const auto body = [&](Group group, at::Device device) {
        const at::Tensor flat = at::full({40}, group.rank() == 0 ? (finite ? 0.0 : NAN) : 2.5,
                                         at::TensorOptions(at::kFloat).device(device));
        const std::vector<GradBucketPart> parts{{0, "a", 0, flat}};
        GradBucket bucket{0, true, flat, &parts};
        adasum_hook()->hook()(group, bucket, ReduceOp::avg).wait();
        const std::lock_guard lock(mutex);
        all[group.rank()] = flat.cpu();
      };
      if (there)
        pretend::run_on_devices(2, body);
      else
        run_threads(2, [&](const Group& group) { body(group, at::kCPU); });
      return all;
    };
    const auto here = values(false), there = values(true);
    for (int r = 0; r < 2; ++r) {
      EXPECT_TRUE(there.at(r).allclose(here.at(r), 0, 0, /*equal_nan=*/true));
      EXPECT_EQ(there.at(r).isnan().all().item<bool>(), !finite);
    }
  }
}

TEST(device_adasum, the_other_hooks_give_the_cpus_bits_and_do_not_block_either) {
  for (const char* name : {"none", "fp16", "bf16"}) {
    const auto make = [name] { return named_comm_hook(name); };
    const Results here = results(2, false, at::kFloat, ReduceOp::sum, make);
    pretend::for_some_seeds(3, [&] {
      for (const auto& [rank, t] : results(2, true, at::kFloat, ReduceOp::sum, make))
        EXPECT_TRUE(t.equal(here.at(rank))) << name << ", rank " << rank;
    });
  }
}

// LibTorch adds a device's squares in one piece, the CPU's in blocks.
TEST(device_adasum, the_noise_scale_is_measured_without_waiting) {
  std::map<int, double> here, there;
  std::mutex mutex;
  const auto body = [&](Group group, at::Device device, std::map<int, double>& all) {
    NoiseScaleHook noise;
    reduced(group, device, at::kFloat, ReduceOp::sum, noise.hook());
    const double parts = noise.take(group, 8, 1, 1, 16).parts;
    const std::lock_guard lock(mutex);
    all[group.rank()] = parts;
  };
  run_threads(2, [&](const Group& group) { body(group, at::kCPU, here); });
  pretend::run_on_devices(
      2, [&](const Group& group, at::Device device) { body(group, device, there); });
  EXPECT_GT(here.at(0), 0);
  for (int r = 0; r < 2; ++r) EXPECT_NEAR(there.at(r), here.at(r), 1e-6 * here.at(r));
}

}  // namespace trireme::device_adasum_test
