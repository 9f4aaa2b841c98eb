// SPDX-License-Identifier: Apache-2.0
#include "trireme/planner/device_memory.h"

#include <gtest/gtest.h>

namespace trireme::device_memory_test {
namespace {

using Fit = MemoryVerdict::Fit;

MemoryQuestion question(int stage, int ranks, const std::string& optimizer) {
  MemoryQuestion q;
  q.parameters = {{"a", {300, 40}, 0}, {"b", {1000, 7}, 1}, {"c", {5}, 1}};
  q.optimizer.type = optimizer;
  q.stage = stage;
  q.dp_shard = stage == 0 ? 1 : ranks;
  q.bucket_elements = 2048;
  q.group_bytes = ranks > 1 ? 9999 : 0;
  q.activation_bytes = 123456;
  q.activation_kept = 100000;
  q.snapshot_bytes = 777;
  q.state_buffer_elements = 4096;
  return q;
}

constexpr int64_t RankMemory::*kRows[] = {&RankMemory::weights,   &RankMemory::gradients,
                                          &RankMemory::optimizer, &RankMemory::activations,
                                          &RankMemory::buffers,   &RankMemory::snapshots};

}  // namespace

TEST(planner_device_memory, nothing_is_negative_and_nothing_is_lost) {
  for (const int stage : {0, 1, 2, 3})
    for (const int ranks : {1, 2, 5, 8})
      for (const char* optimizer : {"SGD", "AdamW", "Lion"})
        for (const int half : {0, 1})
          for (const bool host : {false, true})
            for (const bool disk : {false, true})
              for (const bool staged : {false, true})
                for (const int64_t codec : {int64_t{0}, int64_t{5000}}) {
                  if ((disk && !host) || (host && stage == 0)) continue;
                  MemoryQuestion q = question(stage, ranks, optimizer);
                  if (half)
                    q.weight_bytes = q.gradient_bytes = q.wire_bytes = 2, q.master_bytes = 4;
                  q.states_on_disk = disk;
                  q.exchange_bytes = codec;
                  const RankMemory rank = rank_memory(q);
                  const PlacedMemory m = place_memory(q, rank, {host, staged, codec});
                  for (const auto row : kRows) {
                    EXPECT_GE(m.device.*row, 0);
                    EXPECT_GE(m.host.*row, 0);
                    if (row != &RankMemory::activations) {
                      EXPECT_LE(m.device.*row, rank.*row);
                    }
                  }
                  EXPECT_GE(m.device.total() + m.host.total(), rank.total());
                  EXPECT_EQ(m.host.weights + m.host.gradients + m.host.activations, 0);
                  EXPECT_EQ(m.host.snapshots, 777);
                  if (!host && !staged && codec == 0) {
                    EXPECT_EQ(m.device.total() + m.host.total() - m.device.activations,
                              rank.total() - rank.activations);
                  }
                }
}

// ZeRO-Offload (Ren et al. 2021): 12 bytes a parameter of AdamW leave the device.
TEST(planner_device_memory, a_host_optimizer_takes_its_state_and_float32_weights_from_the_device) {
  for (const int half : {0, 1}) {
    MemoryQuestion q = question(1, 1, "AdamW");
    if (half) q.weight_bytes = q.gradient_bytes = q.wire_bytes = 2, q.master_bytes = 4;
    const int64_t n = 12288 + 7168 + 1024;  // each parameter begins at a multiple of 1,024
    const RankMemory rank = rank_memory(q);
    const PlacedMemory m = place_memory(q, rank, {.host_optimizer = true, .staged = false});
    EXPECT_EQ(m.device.optimizer, 0);
    EXPECT_EQ(m.host.optimizer, 12 * n);
    EXPECT_EQ(m.host.buffers, q.gradient_bytes * n);  // of gradients on their way
    EXPECT_EQ(m.device.weights, rank.weights);
    q.states_on_disk = true;
    const PlacedMemory disk =
        place_memory(q, rank_memory(q), {.host_optimizer = true, .staged = false});
    EXPECT_EQ(disk.host.optimizer, 4 * n);
    EXPECT_EQ(disk.host.buffers, q.gradient_bytes * n + 8 * 4096);
  }
}

TEST(planner_device_memory, is_compared_with_what_the_device_has) {
  RankMemory m;
  m.weights = 600 << 20;
  m.activations = 400 << 20;
  EXPECT_EQ(judge_device_memory(m, "cuda", 0).text,
            "each rank needs 1000.0 MiB of its device's memory, and how much cuda has is not known "
            "here");
  const MemoryVerdict fits = judge_device_memory(m, "cuda", int64_t{2000} << 20),
                      tight = judge_device_memory(m, "cuda", int64_t{900} << 20),
                      none = judge_device_memory(m, "cuda", int64_t{700} << 20);
  EXPECT_EQ(fits.fit, Fit::fits);
  EXPECT_EQ(fits.text,
            "each rank needs 1000.0 MiB of its device's memory; cuda has 1.95 GiB: that fits");
  EXPECT_EQ(tight.fit, Fit::tight);
  EXPECT_EQ(none.fit, Fit::impossible);
  EXPECT_EQ(none.text, "each rank needs 1000.0 MiB of its device's memory, and cuda has 700.0 MiB");
}

TEST(planner_device_memory, is_read_from_a_configuration) {
  const auto placed = [](const std::string& more, int ranks) {
    const Config c = Config::from_text("there.json",
                                       R"({"model": {"type": "mlp", "hidden": [64]},
      "data": {"type": "digits", "train_samples": 256}, "train_micro_batch_size_per_gpu": 4,
      "optimizer": {"type": "AdamW"}, "device": "cuda", "training": {"steps": 3})" +
                                           more + "}");
    return place_memory(c, plan_memory(c, ranks));
  };
  const PlacedMemory plain = placed("", 1),
                     host = placed(R"(, "zero_optimization": {"stage": 1,
                       "offload_optimizer": {"device": "cpu"}})",
                                   1),
                     codec = placed(R"(, "compression": {"type": "int8"})", 2);
  EXPECT_EQ(plain.host.total(), 0);
  EXPECT_GE(plain.device.activations + plain.device.buffers, 2 * 64 * 1024 * 8)
      << "the norm's blocks";
  EXPECT_GT(plain.device.optimizer, 0);
  EXPECT_EQ(host.device.optimizer, 0);
  EXPECT_GT(host.host.optimizer, plain.device.optimizer);
  EXPECT_GT(codec.host.buffers, 2 * plain.device.gradients) << "error feedback and what travels";
  const std::string table = placed_table(host, "cuda", true);
  EXPECT_NE(table.find("on cuda  in host memory\n"), std::string::npos) << table;
  EXPECT_NE(table.find("\noptimizer                0 B "), std::string::npos) << table;
}

}  // namespace trireme::device_memory_test
