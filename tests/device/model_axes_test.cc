// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "tests/device/train_runs.h"

// Models that are divided over layers and stages, on devices whose streams are late: a covering
// part of tests/parity/model_axes_test.cc.
namespace trireme::device_model_axes_test {
namespace {

using namespace trireme::testing;

const std::string kDocuments = "data.type=documents";

void expect_near(int ranks, const Sets& sets, double near = 1e-4) {
  const Folders folders;
  const bool documents = std::find(sets.begin(), sets.end(), kDocuments) != sets.end();
  const std::string text = documents ? write_short_documents(folders.folder, 4) : folders.corpus;
  expect_near_the_cpu(
      [&](const Sets& more) {
        return tiny_gpt(text,
                        with(with({"model.layers=4", "training.steps=2", "training.eval_batches=1",
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

TEST(device_model_axes, positions_over_two_devices) {
  expect_near(2, {"parallelism.cp=2", "parallelism.cp_method=all_gather", "bf16.enabled=true"},
              1e-2);
  expect_near(4, {"parallelism.cp=2", "parallelism.cp_method=all_to_all", "parallelism.tp=2",
                  "model.heads=4", "zero_optimization.stage=3", "training.check_replicas=2"});
  expect_near(4, {"parallelism.cp=2", "parallelism.pp=2", kDocuments});
}

TEST(device_model_axes, stages_on_two_devices) {
  expect_near(2, {"parallelism.pp=2"});
  expect_near(2, {"parallelism.pp=2", "parallelism.schedule=zb_h1", "model.tied_head=true"});
  expect_near(2, {"parallelism.pp=2", "parallelism.schedule=zb_v", "training.recompute_every=1",
                  "model.tied_head=false"});
  expect_near(2, {"parallelism.pp=2", "parallelism.schedule=breadth_first",
                  "parallelism.virtual_stages=2", "model.tied_head=true"});
  expect_near(4, {"parallelism.pp=2", "zero_optimization.stage=2", "training.check_replicas=1"});
}

TEST(device_model_axes, zero_over_stages) {
  expect_near(4, {"parallelism.pp=2", "zero_optimization.stage=1", "model.tied_head=true"});
  expect_near(4, {"parallelism.pp=2", "zero_optimization.stage=3",
                  "zero_optimization.stage3_param_persistence_threshold=0"});
  expect_near(4, {"parallelism.pp=2", "zero_optimization.stage=3", "training.recompute_every=1",
                  "parallelism.schedule=breadth_first", "parallelism.virtual_stages=2"});
}

TEST(device_model_axes, stages_and_parts_in_bfloat16) {
  expect_near(4, {"parallelism.pp=2", "bf16.enabled=true", "zero_optimization.stage=1"}, 1e-2);
  expect_near(2, {"parallelism.tp=2", "bf16.enabled=true"}, 1e-2);
}

TEST(device_model_axes, micro_batches_of_different_lengths) {
  expect_near(2, {"parallelism.pp=2", kDocuments});
  expect_near(4, {"parallelism.pp=2", "parallelism.tp=2", "parallelism.sequence_parallel=true",
                  "parallelism.schedule=zb_h1", kDocuments});
}

TEST(device_model_axes, stages_of_divided_layers) {
  expect_near(4, {"parallelism.pp=2", "parallelism.tp=2", "parallelism.sequence_parallel=true",
                  "parallelism.schedule=interleaved_1f1b"});
  expect_near(4, {"parallelism.pp=2", "parallelism.tp=2", "parallelism.schedule=zb_h1"});
}

}  // namespace
}  // namespace trireme::device_model_axes_test
