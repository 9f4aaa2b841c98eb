// SPDX-License-Identifier: Apache-2.0
// What mpirun starts: one rank with a device of its own, of a group on the backend that is named.
// Exits with 0 when all holds, else with 1 and a line that says what does not.
#include <ATen/ATen.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "tests/support/conformance.h"
#include "tests/support/pretend_device/pretend_device.h"
#include "tests/support/pretend_device/seeds.h"
#include "tests/train/small_runs.h"
#include "trireme/base/check.h"
#include "trireme/comm/start/run.h"
#include "trireme/tensor/device.h"

namespace trireme {
namespace {

void check_bits(const testing::Trained& there, const testing::Trained& cpu,
                const std::string& what) {
  check<Error>(there.losses == cpu.losses, "{}: other losses than on the CPU", what);
  for (size_t i = 0; i < cpu.weights.size(); ++i)
    check<Error>(there.weights[i].second.cpu().equal(cpu.weights[i].second),
                 "{}: '{}' has other bits than on the CPU", what, cpu.weights[i].first);
}

/// Calls, late ones, and training runs that end with the bits of this group's CPU.
void all_of_it(Group g, at::Device device) {
  const bool any_source = g.backend() != "hybrid";  // which refuses it
  testing::conform(g, {at::kFloat, at::kBFloat16, at::kBool}, {{0}, {5001}}, any_source, device);
  Group half = g.split(0, -g.rank());
  testing::conform(half, {at::kLong}, {{3, 5}}, any_source, device);
  const auto seeds = static_cast<uint64_t>(pretend::some_seeds(1));
  for (uint64_t seed = 1; seed <= seeds; ++seed) {
    pretend::reseed(seed);
    testing::conform(g, {at::kFloat}, {{4, 150}}, any_source, device);
    for (const char* sets : {"zero_optimization.stage=0", "zero_optimization.stage=2",
                             "zero_optimization.stage=3", "compression.type=topk"}) {
      const auto run = [&](const char* where) {
        return testing::train_on(testing::digits("mlp", {sets, std::string("device=") + where}), g,
                                 3);
      };
      check_bits(run("privateuseone"), run("cpu"), sets);
    }
  }
  pretend::reseed(0);
}

}  // namespace
}  // namespace trireme

int main(int, char** argv) {
  using namespace trireme;
  int rank = -1;
  try {
    const std::string backend = argv[1];
    if (const char* mine = std::getenv("OMPI_COMM_WORLD_RANK"); backend == "hybrid" && mine)
      ::setenv("TRIREME_HOST_ID", mine, 1);  // as on two hosts
    Group world = init_process_group(
        {.backend = backend, .across = "mpi", .timeout = std::chrono::seconds(60)});
    rank = world.rank();
    const at::Device device = choose_device("privateuseone", rank);
    {
      const CurrentDevice current(device);
      all_of_it(world, device);
    }
    world.barrier();
    std::fprintf(stderr, "rank %d of %d on %s: all is well\n", rank, world.size(),
                 world.backend().c_str());
    return 0;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "rank %d: %s\n", rank, e.what());
    return 1;
  }
}
