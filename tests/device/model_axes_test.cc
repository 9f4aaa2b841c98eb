// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "tests/device/train_runs.h"

// Models that are divided over layers and stages, on devices whose streams are late: a covering
// part of tests/parity/model_axes_test.cc.
namespace trireme::device_model_axes_test {
namespace {

using namespace trireme::testing;

void expect_near(int ranks, const Sets& sets, double near = 1e-4) {
  const Folders corpus;
  expect_near_the_cpu(
      [&](const Sets& more) {
        return tiny_gpt(corpus.corpus,
                        with(with({"model.layers=4", "training.steps=4", "training.eval_batches=2",
                                   "optimizer.params.lr=1e-3", "train_micro_batch_size_per_gpu=2"},
                                  sets),
                             more));
      },
      ranks, sets, near);
}

TEST(device_model_axes, layers_over_two_devices) {
  expect_near(2, {"parallelism.tp=2"});
  expect_near(4, {"parallelism.tp=2", "parallelism.sequence_parallel=true",
                  "zero_optimization.stage=2", "training.check_replicas=2"});
  expect_near(4, {"parallelism.tp=2", "zero_optimization.stage=3", "model.tied_head=true"});
}

TEST(device_model_axes, stages_on_two_devices) {
  expect_near(2, {"parallelism.pp=2"});
  expect_near(2, {"parallelism.pp=2", "parallelism.schedule=zb_h1", "model.tied_head=true"});
  expect_near(2, {"parallelism.pp=2", "parallelism.schedule=zb_v", "training.recompute_every=1",
                  "model.tied_head=false"});
  expect_near(4, {"parallelism.pp=2", "zero_optimization.stage=2", "training.check_replicas=1"});
}

TEST(device_model_axes, stages_of_divided_layers) {
  expect_near(4, {"parallelism.pp=2", "parallelism.tp=2", "parallelism.sequence_parallel=true",
                  "parallelism.schedule=interleaved_1f1b"});
  expect_near(4, {"parallelism.pp=2", "parallelism.tp=2", "parallelism.schedule=zb_h1"});
}

}  // namespace
}  // namespace trireme::device_model_axes_test
