// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <memory>

#include "tests/device/train_runs.h"
#include "tests/train/chain_programs.h"
#include "tests/train/program_runs.h"

// Programs whose pieces are the stages of a pipeline, on devices whose streams are late: a covering
// part of tests/train/chain_program_test.cc.
namespace trireme::device_chain_program_test {
namespace {

using namespace trireme::testing;

template <class P = DeepProgram>
void expect_cpus_bits_of(int ranks, const Sets& sets) {
  expect_cpus_bits(
      [](const Sets& more) {
        return config_for<P>(
            with({"gradient_clipping=0.5", "training.steps=4", "train_micro_batch_size_per_gpu=2"},
                 more));
      },
      ranks, sets, [] { return std::make_unique<P>(); });
}

}  // namespace

TEST(device_chain_program, pieces_on_two_devices_end_with_the_cpus_bits) {
  expect_cpus_bits_of(2, {"parallelism.pp=2"});
  expect_cpus_bits_of(2, {"parallelism.pp=2", "parallelism.schedule=zb_h1"});
  expect_cpus_bits_of(2, {"parallelism.pp=2", "parallelism.schedule=interleaved_1f1b"});
}

TEST(device_chain_program, buffers_and_several_terms_end_with_the_cpus_bits) {
  expect_cpus_bits_of<NormedProgram>(2, {"parallelism.pp=2"});
  expect_cpus_bits_of<DeepTerms>(2, {"parallelism.pp=2"});
}

TEST(device_chain_program, sharded_pieces_on_four_devices_end_with_the_cpus_bits) {
  for (const char* stage : {"1", "3"})
    expect_cpus_bits_of(4, {"parallelism.pp=2", std::string("zero_optimization.stage=") + stage});
}

}  // namespace trireme::device_chain_program_test
