// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "tests/shard/offload_child.h"
#include "trireme/base/failpoint.h"
#include "trireme/checkpoint/reader.h"
#include "trireme/checkpoint/writer.h"
#include "trireme/shard/offload/offload_optimizer.h"

// Offloaded state in real checkpoints.
namespace trireme::testing::offload_checkpoint_test {
namespace {

constexpr double kLr = 0.01;

/// A model of bfloat16 weights under float32 masters, and its optimizer: offloaded, or not.
struct Model {
  explicit Model(const std::string& folder, uint64_t seed = 1) {
    torch::manual_seed(seed);
    for (int i = 0; i < 5; ++i)
      weights.emplace_back("layer" + std::to_string(i) + ".weight",
                           torch::randn({30 + i, 70}).to(torch::kBFloat16).requires_grad_());
    const MakeOptimizer make = [](NamedTensors p) {
      return with_master_weights(std::move(p),
                                 [](NamedTensors q) { return make_adamw(std::move(q)); });
    };
    if (folder.empty())
      optimizer = make(weights);
    else
      optimizer =
          offload_optimizer(weights, make, {.file = {.folder = folder}, .sub_group_bytes = 60000});
  }
  void train(int steps, uint64_t seed) {
    torch::manual_seed(seed);
    for (int s = 0; s < steps; ++s) {
      for (auto& [name, p] : weights) p.mutable_grad() = torch::randn(p.sizes()).to(p.dtype());
      optimizer->step(kLr);
    }
  }
  StateWalk walk() {
    return [this](StateVisitor& v) {
      for (auto& [name, p] : weights) v.tensor("model." + name, p.detach());
      optimizer->state(v);
    };
  }
  const OffloadedOptimizer& offloaded() const {
    return dynamic_cast<const OffloadedOptimizer&>(*optimizer);
  }
  NamedTensors weights;
  std::unique_ptr<Optimizer> optimizer;
};

void expect_same(const Model& a, const Model& b, const std::string& what) {
  for (size_t i = 0; i < a.weights.size(); ++i)
    EXPECT_TRUE(a.weights[i].second.equal(b.weights[i].second)) << what << " layer " << i;
}

TEST(shard_offload_checkpoint, its_bytes_are_those_of_state_in_memory) {
  PrivateFolder disk, runs;
  Model plain(""), away(disk.path());
  plain.train(3, 9);
  away.train(3, 9);
  ASSERT_GT(away.offloaded().usage().sub_groups, 2);
  const std::string a = save_step(runs / "plain", 3, plain.walk());
  const std::string b = save_step(runs / "away", 3, away.walk());
  // The writer kept what it was shown until the files were there.
  EXPECT_EQ(away.offloaded().usage().mapped_bytes, away.offloaded().usage().state_bytes);
  EXPECT_EQ(away.offloaded().usage().resident_bytes, 0);
  // Tensors of a file lie in the order of the walk, so file by file is not asked for here.
  Model from_plain(disk.path(), 5), from_away("", 6);
  load_step(a, from_plain.walk());
  load_step(b, from_away.walk());
  EXPECT_EQ(from_plain.optimizer->steps(), 3);
  plain.train(2, 11);
  away.train(2, 11);
  from_plain.train(2, 11);
  from_away.train(2, 11);
  expect_same(plain, away, "went on");
  expect_same(plain, from_plain, "saved in memory, loaded onto disk");
  expect_same(plain, from_away, "saved from disk, loaded into memory");
  EXPECT_EQ(away.offloaded().usage().mapped_bytes, 0);
}

TEST(shard_offload_checkpoint, saving_twice_and_between_steps_changes_nothing) {
  PrivateFolder disk, runs;
  Model once(""), often(disk.path());
  for (int s = 1; s <= 4; ++s) {
    once.train(1, static_cast<uint64_t>(s));
    often.train(1, static_cast<uint64_t>(s));
    save_step(runs / "run", s, often.walk());
    save_step(runs / "run", s, often.walk());
  }
  expect_same(once, often, "saved at every step");
  Model again(disk.path(), 3);
  EXPECT_EQ(load_step(runs / "run", again.walk()).step, 4);
  once.train(1, 77);
  again.train(1, 77);
  expect_same(once, again, "resumed");
}

TEST(shard_offload_checkpoint, a_damaged_offload_file_is_not_saved) {
  PrivateFolder disk, runs;
  Model model(disk.path());
  model.train(1, 1);
  save_step(runs / "run", 1, model.walk());
  flip_byte(disk.path(), 100);
  const std::string o = outcome_of([&] { save_step(runs / "run", 2, model.walk()); });
  EXPECT_TRUE(
      has(o, "Corrupt: reading the optimizer state of the parameters 'layer0.weight' to ") &&
      has(o, "load a checkpoint"))
      << o;
  Model fresh(disk.path(), 2);
  EXPECT_EQ(load_step(runs / "run", fresh.walk()).step, 1);
}

TEST(shard_offload_checkpoint, a_disk_that_fails_while_loading_is_named) {
  PrivateFolder disk, runs;
  Model model(disk.path()), other(disk.path(), 2);
  model.train(1, 1);
  save_step(runs / "run", 1, model.walk());
  set_failpoints("offload.write@1=error(28)");
  const std::string o = outcome_of([&] { load_step(runs / "run", other.walk()); });
  set_failpoints("");
  EXPECT_TRUE(has(o, "ResourceError: writing the optimizer state ") &&
              has(o, "No space left on device"))
      << o;
}

}  // namespace
}  // namespace trireme::testing::offload_checkpoint_test
