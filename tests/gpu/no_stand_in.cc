// SPDX-License-Identifier: Apache-2.0
#include <c10/core/DeviceGuard.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "tests/gpu/by_device.h"
#include "tests/gpu/stand_in.h"
#include "tests/support/backends.h"
#include "trireme/base/error.h"
#include "trireme/comm/start/run.h"

// For a LibTorch that has CUDA, or for which there is no stand-in: the machine's own GPUs.
namespace trireme::testing {

int gpu_count() { return present("nccl") ? gpus() : 0; }
bool gpus_stand_in() { return false; }

namespace {

void run(const char* backend, int n, const std::function<void(Group, at::Device)>& fn) {
  const auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
  SpawnOptions options;
  options.backend = backend;
  options.timeout = std::chrono::minutes(2);
  options.args = {std::string("--gtest_filter=") + test->test_suite_name() + "." + test->name()};
  spawn(
      std::min(n, gpu_count()),
      [&](Group g) {
        const at::Device device(at::kCUDA, static_cast<c10::DeviceIndex>(g.rank()));
        const c10::DeviceGuard guard(device);
        fn(g, device);
        if (::testing::Test::HasFailure()) throw Error("a rank's expectations failed");
      },
      options);
}

}  // namespace

void run_on_gpus(int n, const std::function<void(Group, at::Device)>& fn) { run("nccl", n, fn); }

void run_on_gpus_and_cpus(int n, const std::function<void(Group, at::Device)>& fn) {
  run("cpu:local,cuda:nccl", n, fn);
}

}  // namespace trireme::testing
