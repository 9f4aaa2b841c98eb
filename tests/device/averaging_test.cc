// SPDX-License-Identifier: Apache-2.0
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <map>
#include <mutex>

#include "tests/support/pretend_device/group.h"
#include "tests/support/pretend_device/seeds.h"
#include "tests/support/ranks.h"
#include "trireme/comm/start/run.h"
#include "trireme/optim/averaging/model_averaging.h"

// Averaging of weights on a device.
namespace trireme::device_averaging_test {
namespace {

using trireme::testing::outcome_of;

NamedTensors weights(int rank, at::Device device) {
  NamedTensors all;
  for (const int64_t n : {1000, 7})
    all.emplace_back(
        "w" + std::to_string(n),
        at::arange(n, at::kFloat).mul(0.3).add(rank).sin().to(device).requires_grad_());
  return all;
}

/// Each rank goes its own way for four steps.
at::Tensor walked(const Group& group, at::Device device, bool outer) {
  NamedTensors w = weights(0, device);
  auto averager =
      outer ? diloco(w, group, {.period = 2}) : average_periodically(w, group, {.period = 2});
  for (int step = 0; step < 4; ++step) {
    for (auto& [name, p] : w) {
      const at::NoGradGuard no_grad;
      p.mul_(1 - 0.1 * (group.rank() + 1));
    }
    averager->step();
  }
  return at::cat({w[0].second.detach(), w[1].second.detach()}).cpu();
}

}  // namespace

TEST(device_averaging, weights_are_averaged_to_the_cpus_bits) {
  for (const bool outer : {false, true}) {
    std::map<int, at::Tensor> here;
    std::mutex mutex;
    run_threads(2, [&](const Group& group) {
      const at::Tensor mine = walked(group, at::kCPU, outer);
      const std::lock_guard lock(mutex);
      here[group.rank()] = mine;
    });
    pretend::for_some_seeds(3, [&] {
      pretend::run_on_devices(2, [&](const Group& group, at::Device device) {
        EXPECT_TRUE(walked(group, device, outer).equal(here.at(group.rank())))
            << outer << ", rank " << group.rank();
      });
    });
  }
}

TEST(device_averaging, weights_that_are_not_finite_are_named_before_they_spread) {
  pretend::run_on_devices(2, [](const Group& group, at::Device device) {
    NamedTensors w = weights(group.rank(), device);
    auto averager = average_periodically(w, group, {.period = 1});
    if (group.rank() == 1) w[1].second.detach().fill_(NAN);
    const std::string said = outcome_of([&] { averager->step(); });
    EXPECT_NE(said.find("'w7' of rank 1 is not finite"), std::string::npos) << said;
    EXPECT_EQ(w[1].second.detach().cpu().isfinite().all().item<bool>(), group.rank() == 0);
  });
}

}  // namespace trireme::device_averaging_test
