// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <filesystem>
#include <functional>

#include "tests/shard/offload_child.h"
#include "tests/support/memory_limit.h"
#include "trireme/checkpoint/async_saver.h"
#include "trireme/checkpoint/reader.h"
#include "trireme/checkpoint/writer.h"
#include "trireme/comm/start/run.h"
#include "trireme/shard/offload/offload_optimizer.h"

// State that is larger than the memory there is.
namespace trireme::testing::offload_memory_test {
namespace {

constexpr size_t kMiB = size_t{1} << 20;
constexpr int kLayers = 24;

/// bfloat16 weights and gradients, 24 MiB; float32 masters and moments, 72 MiB.
struct Training {
  Training() {
    for (int i = 0; i < kLayers; ++i) {
      auto p = at::full({1 << 18}, 0.5, at::kBFloat16).requires_grad_();
      p.mutable_grad() = at::full({1 << 18}, 0.01 * (i + 1), at::kBFloat16);
      weights.emplace_back("layer" + std::to_string(i), p);
    }
  }
  static std::unique_ptr<Optimizer> in_memory(NamedTensors p) {
    return with_master_weights(std::move(p),
                               [](NamedTensors q) { return make_adamw(std::move(q)); });
  }
  /// Three buffers of 3 MiB, and one sub-group while it is made.
  void offload(const OffloadFileOptions& file) {
    optimizer = offload_optimizer(weights, in_memory, {.file = file, .sub_group_bytes = 3 << 20});
  }
  void train(int steps) {
    for (int s = 0; s < steps; ++s) optimizer->step(0.01);
  }
  double sum() const {
    double all = 0;
    for (const auto& [name, p] : weights) all += p.sum().item<double>();
    return all;
  }
  NamedTensors weights;
  std::unique_ptr<Optimizer> optimizer;
};

// Beyond what the process has. Offloaded: 24 MiB, buffers 9, a sub-group 3, and a thread's stack 8
// while it trains or two windows of 8 while it saves. In memory: 96 MiB.
constexpr size_t kRoom = 72 * kMiB;

double sum_in_memory() {
  Training plain;
  plain.optimizer = Training::in_memory(plain.weights);
  plain.train(3);
  return plain.sum();
}

void train_in_memory() {
  Training plain;
  plain.optimizer = Training::in_memory(plain.weights);
  plain.train(1);
}

TEST(shard_offload_memory, under_a_limit_of_memory_state_on_disk_trains_and_in_memory_does_not) {
  PrivateFolder folder;
  const double expected = sum_in_memory();
  const std::string plain = in_child([] {
    limit_data(kRoom);
    train_in_memory();
  });
  EXPECT_TRUE(has(plain, "not enough memory") || has(plain, "alloc")) << plain;
  EXPECT_EQ(in_child([&] {
              limit_data(kRoom);
              Training away;
              away.offload({.folder = folder.path()});
              away.train(3);
              check<Error>(away.sum() == expected, "{} instead of {}", away.sum(), expected);
            }),
            "");
}

/// How a checkpoint is written.
using Save = std::function<void(const std::string& run, int64_t step, const StateWalk& walk)>;

/// Two steps, a checkpoint, and one step of what was loaded from it, in a small cgroup.
void train_save_and_resume(bool direct, const Save& save, size_t room = kRoom) {
  PrivateFolder folder;
  const double expected = sum_in_memory();
  MemoryLimit limit(room);
  if (!limit.why().empty()) GTEST_SKIP() << limit.why();
  const auto walk = [](Training& t) {
    return [&t](StateVisitor& v) {
      for (auto& [name, p] : t.weights) v.tensor("model." + name, p.detach());
      t.optimizer->state(v);
    };
  };
  EXPECT_EQ(in_child([&] {
              limit.enter();
              {
                Training away;
                away.offload({.folder = folder.path(), .direct = direct});
                away.train(2);
                save(folder / "run", 2, walk(away));
              }
              Training again;
              again.offload({.folder = folder.path(), .direct = direct});
              load_step(folder / "run", walk(again));
              again.train(1);
              check<Error>(again.sum() == expected, "{} instead of {}", again.sum(), expected);
            }),
            "");
}

TEST(shard_offload_memory, in_a_small_cgroup_state_in_memory_is_killed) {
  MemoryLimit limit(kRoom);
  if (!limit.why().empty()) GTEST_SKIP() << limit.why();
  EXPECT_EQ(in_child([&] {
              limit.enter();
              train_in_memory();
            }),
            "signal 9");
}

void save_and_wait(const std::string& run, int64_t step, const StateWalk& walk) {
  save_step(run, step, walk);
}

// Two of the weights alone, 12 MiB each: the state is read from its file, a block at a time.
constexpr size_t kSnapshots = 26 * kMiB;

void save_behind_training(const std::string& run, int64_t step, const StateWalk& walk) {
  run_threads(1, [&](Group group) {
    AsyncSaver saver(run, group);
    saver.save(step, walk);
    saver.wait();
    check<Error>(saver.memory_bytes() < static_cast<int64_t>(kSnapshots), "{} bytes of snapshots",
                 saver.memory_bytes());
  });
}

TEST(shard_offload_memory, in_a_small_cgroup_state_on_disk_trains_saves_and_resumes) {
  train_save_and_resume(true, save_and_wait);
}

TEST(shard_offload_memory, in_a_small_cgroup_state_on_disk_is_saved_asynchronously_and_resumes) {
  train_save_and_resume(true, save_behind_training, kRoom + kSnapshots);
}

TEST(shard_offload_memory, in_a_small_cgroup_the_page_cache_of_the_file_is_in_nobodys_way) {
  train_save_and_resume(false, save_and_wait);
}

}  // namespace
}  // namespace trireme::testing::offload_memory_test
