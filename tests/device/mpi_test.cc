// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cstdlib>

#include "tests/support/mpirun.h"

// Groups over MPI, whose calls read the CPU's memory, with a device for each rank, under the real
// mpirun. What the ranks do stands in mpi_ranks.cc.
namespace trireme::device_mpi_test {
namespace {

using namespace trireme::testing;

void expect_all_well(Mpi mpi, const std::string& backend) {
  if (const auto why = why_not(mpi); !why.empty()) GTEST_SKIP() << why;
  Command job(mpi_ranks(mpi, 2, "mpi_on_devices", {backend}), {own_job(), {}});
  const std::chrono::seconds patience(std::getenv("TRIREME_SOAK") ? 900 : 120);
  EXPECT_EQ(job.finish(patience), 0) << job.out << job.err;
  EXPECT_EQ(count(job.out + job.err, "on " + backend + ": all is well"), 2) << job.out << job.err;
}

}  // namespace

TEST(device_mpi, calls_and_training_under_open_mpi_have_the_cpus_bits) {
  expect_all_well(Mpi::open, "mpi");
}
TEST(device_mpi, calls_and_training_under_mpich_have_the_cpus_bits) {
  expect_all_well(Mpi::mpich, "mpi");
}
TEST(device_mpi, two_hosts_of_hybrid_over_open_mpi_have_the_cpus_bits) {
  expect_all_well(Mpi::open, "hybrid");
}

}  // namespace trireme::device_mpi_test
