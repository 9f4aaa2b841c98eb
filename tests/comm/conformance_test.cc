// SPDX-License-Identifier: Apache-2.0
#include "tests/support/conformance.h"

#include <c10/core/DeviceGuard.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/support/backends.h"
#include "trireme/comm/start/run.h"

namespace conformance_test {

using namespace trireme;
using trireme::testing::all_dtypes;
using trireme::testing::conform;
using trireme::testing::present;
using trireme::testing::Sizes;

// One body for all backends: tests/support/conformance.h. mpi's ranks are started by mpirun:
// tests/comm/mpi.
namespace {

const std::vector<Sizes> kShapes{{}, {0}, {1}, {7}, {3, 5}, {40, 61}, {50001}};
const std::vector<Sizes> kFew{{0}, {3, 5}, {50001}};
const std::vector<at::ScalarType> kFewTypes{at::kFloat, at::kBFloat16, at::kLong, at::kChar,
                                            at::kBool};

SpawnOptions this_test(const std::string& backend) {
  const auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
  SpawnOptions o;
  o.backend = backend;
  o.timeout = std::chrono::seconds(60);
  o.args = {std::string("--gtest_filter=") + test->test_suite_name() + "." + test->name()};
  return o;
}

#define NEEDS(backend) \
  if (!present(backend)) GTEST_SKIP() << "the backend " << backend << " is not in this build"

}  // namespace

TEST(comm_conformance, local_as_threads) {
  for (int n : {1, 2}) run_threads(n, [](Group g) { conform(g, all_dtypes(), kShapes); });
  for (int n : {3, 4}) run_threads(n, [](Group g) { conform(g, kFewTypes, kFew); });
}

TEST(comm_conformance, local_as_five_to_eight_threads_on_fewer_cores) {
  for (int n : {5, 6, 7, 8}) run_threads(n, [](Group g) { conform(g, kFewTypes, kFew); });
}

TEST(comm_conformance, local_as_two_processes) {
  spawn(
      2, [](Group g) { conform(g, all_dtypes(), kShapes); }, this_test("local"));
}

TEST(comm_conformance, local_as_five_processes) {
  spawn(
      5, [](Group g) { conform(g, kFewTypes, kFew); }, this_test("local"));
}

TEST(comm_conformance, local_groups_that_were_split_conform_too) {
  run_threads(5, [](Group world) {
    Group g = world.split(world.rank() % 2, -world.rank());
    conform(g, kFewTypes, kFew);
    world.barrier();
  });
}

TEST(comm_conformance, gloo_as_threads) {
  NEEDS("gloo");
  for (int n : {1, 2, 3})
    run_threads(n, [](Group g) { conform(g, all_dtypes(), kFew); },
                {std::chrono::minutes(1), "gloo"});
}

TEST(comm_conformance, gloo_as_processes) {
  NEEDS("gloo");
  spawn(
      3, [](Group g) { conform(g, kFewTypes, kFew); }, this_test("gloo"));
}

TEST(comm_conformance, hybrid_on_two_hosts_of_two) {
  NEEDS("gloo");
  SpawnOptions options = this_test("hybrid");
  // Two hosts as far as the backend can tell, ranks dealt in turn.
  options.env = [](int rank) {
    return std::vector<std::string>{"TRIREME_HOST_ID=" + std::to_string(rank % 2)};
  };
  spawn(
      4, [](Group g) { conform(g, all_dtypes(), kShapes, false); }, options);
}

TEST(comm_conformance, hybrid_on_hosts_of_two_and_one) {
  NEEDS("gloo");
  SpawnOptions options = this_test("hybrid");
  options.env = [](int rank) {
    return std::vector<std::string>{"TRIREME_HOST_ID=" + std::to_string(rank / 2)};
  };
  spawn(
      3, [](Group g) { conform(g, kFewTypes, kFew, false); }, options);
}

// NCCL takes a GPU for each rank.
TEST(comm_conformance, nccl_with_a_rank_on_each_gpu) {
  const int n = present("nccl") ? std::min(trireme::testing::gpus(), 4) : 0;
  if (n == 0) GTEST_SKIP() << "needs a GPU";
  spawn(
      n,
      [](Group g) {
        const at::Device device(at::kCUDA, static_cast<c10::DeviceIndex>(g.rank()));
        const c10::DeviceGuard guard(device);
        conform(g, all_dtypes(), kShapes, false, device);
      },
      this_test("nccl"));
}

}  // namespace conformance_test
