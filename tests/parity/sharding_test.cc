// SPDX-License-Identifier: Apache-2.0
// The table of sharding: every stage, states and parameters in memory or on disk, float32 or
// bfloat16, with and without recomputation, on 1, 2 and 4 ranks against plain training.
#include <gtest/gtest.h>

#include "tests/train/small_runs.h"
#include "trireme/base/check.h"
#include "trireme/checkpoint/safetensors.h"

namespace sharding_test {

using namespace trireme;
using namespace trireme::testing;

namespace {

constexpr int64_t kSteps = 20;

enum Disk { nothing, states, parameters, both };  // what lies there

struct Row {
  int stage;
  Disk disk;
  bool bf16, recompute;
};

std::string text_of(const Row& r) {
  static constexpr const char* kOnDisk[] = {"", "_on_disk", "_parameters_on_disk", "_all_on_disk"};
  return "stage" + std::to_string(r.stage) + kOnDisk[r.disk] + (r.bf16 ? "_bf16" : "_fp32") +
         (r.recompute ? "_recomputed" : "");
}

std::string name_of(const ::testing::TestParamInfo<Row>& info) { return text_of(info.param); }
void PrintTo(const Row& row, std::ostream* out) { *out << text_of(row); }

std::vector<Row> all_rows() {
  std::vector<Row> rows;
  for (int stage : {1, 2, 3})
    for (Disk disk : {nothing, states, parameters, both}) {
      if (stage < 3 && disk >= parameters) continue;
      for (bool bf16 : {false, true})
        for (bool recompute : {false, true}) rows.push_back({stage, disk, bf16, recompute});
    }
  return rows;
}

Sets base(bool bf16, bool recompute) {
  Sets sets = {"train_batch_size=8", "training.steps=20"};
  if (bf16)  // half buckets have no reproducible mode
    sets.push_back("bf16.enabled=true");
  else
    sets.insert(sets.end(), {"training.reproducible=true", "training.leaves=4"});
  if (recompute) sets.push_back("training.recompute_every=1");
  return sets;
}

Sets with_zero(Sets sets, const Row& row, const std::string& folder) {
  sets.push_back("zero_optimization.stage=" + std::to_string(row.stage));
  sets.push_back("zero_optimization.stage3_param_persistence_threshold=0");
  if (row.disk == states || row.disk == both) {
    sets.push_back("zero_optimization.offload_optimizer.device=nvme");
    sets.push_back("zero_optimization.offload_optimizer.nvme_path=" + folder);
    sets.push_back("zero_optimization.sub_group_size=4096");
  }
  if (row.disk >= parameters) {
    sets.push_back("zero_optimization.offload_param.device=nvme");
    sets.push_back("zero_optimization.offload_param.nvme_path=" + folder);
    // A unit is asked for while the one before computes, and no earlier.
    sets.push_back("zero_optimization.stage3_prefetch_bucket_size=16384");
  }
  return sets;
}

class parity_sharding : public ::testing::TestWithParam<Row> {};

TEST_P(parity_sharding, weights_after_20_steps_are_those_of_plain_training) {
  const Row row = GetParam();
  PrivateFolder folder;
  const std::string corpus = write_corpus(folder);
  for (int n : {1, 2, 4}) {
    // bfloat16 gradients are rounded in each rank: plain training on as many of them.
    const Config plain = tiny_gpt(corpus, base(row.bf16, row.recompute));
    const Trained want = train_on_threads(row.bf16 ? n : 1, plain, kSteps)[0];
    const Config config =
        tiny_gpt(corpus, with_zero(base(row.bf16, row.recompute), row, folder.path()));
    for (const Trained& got : train_on_threads(n, config, kSteps)) {
      if (row.bf16) {
        EXPECT_LT(relative_distance(got.weights, want.weights), 1e-3) << n << " ranks";
      } else {
        EXPECT_EQ(first_difference(got.weights, want.weights), "") << n << " ranks";
        EXPECT_EQ(got.norms, want.norms) << "the norm of whole gradients";
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(, parity_sharding, ::testing::ValuesIn(all_rows()), name_of);

TEST(parity_sharding_hybrid, shards_in_pairs_with_replicas_are_plain_training_to_the_bit) {
  PrivateFolder folder;
  const std::string corpus = write_corpus(folder);
  const Trained want = train_on_threads(1, tiny_gpt(corpus, base(false, false)), kSteps)[0];
  for (int stage : {1, 2, 3}) {
    Sets sets = with_zero(base(false, false), {stage, nothing, false, false}, "");
    sets.push_back("parallelism.dp_shard=2");
    for (const Trained& got : train_on_threads(4, tiny_gpt(corpus, sets), kSteps))
      EXPECT_EQ(first_difference(got.weights, want.weights), "") << "stage " << stage;
  }
}

TEST(parity_sharding_shared_weights, one_copy_of_the_weights_trains_to_the_same_bits) {
  PrivateFolder folder;
  const std::string corpus = write_corpus(folder);
  const Trained want = train_on_threads(1, tiny_gpt(corpus, base(false, false)), kSteps)[0];
  for (int stage : {1, 2}) {
    Sets sets = with_zero(base(false, false), {stage, nothing, false, false}, "");
    sets.push_back("zero_optimization.share_weights=true");
    for (const Trained& got : train_on_threads(4, tiny_gpt(corpus, sets), kSteps))
      EXPECT_EQ(first_difference(got.weights, want.weights), "") << "stage " << stage;
  }
}

// A rank is this program started again: it finds the folder in the environment.
TEST(parity_sharding_shared_weights, processes_that_share_one_copy_have_the_bits_too) {
  constexpr const char* kFolder = "TRIREME_TEST_PARITY_FOLDER";
  std::unique_ptr<PrivateFolder> own;
  if (!std::getenv("TRIREME_SPAWN")) {
    own = std::make_unique<PrivateFolder>();
    write_corpus(*own);
    ::setenv(kFolder, own->path().c_str(), 1);
  }
  const std::string folder = std::getenv(kFolder);
  auto file = [&](int stage, int rank) { return fmt::format("{}/{}.{}", folder, stage, rank); };
  auto config = [&](int stage) {
    Sets sets = with_zero(base(false, false), {stage, nothing, false, false}, "");
    if (stage > 0) sets.push_back("zero_optimization.share_weights=true");
    return tiny_gpt(folder + "/text.txt", sets);
  };
  SpawnOptions options;
  options.timeout = std::chrono::seconds(60);
  options.args = {"--gtest_filter=parity_sharding_shared_weights.processes_*"};
  spawn(
      2,
      [&](Group g) {
        for (int stage : {1, 2})
          write_safetensors(file(stage, g.rank()), train_on(config(stage), g, kSteps).weights);
        if (g.rank() == 0)
          write_safetensors(
              file(0, 0),
              train_on_threads(1, tiny_gpt(folder + "/text.txt", base(false, false)), kSteps)[0]
                  .weights);
      },
      options);
  for (int stage : {1, 2})
    for (int rank : {0, 1})
      EXPECT_TRUE(read_file(file(stage, rank)) == read_file(file(0, 0)))
          << "stage " << stage << ", rank " << rank;
  ::unsetenv(kFolder);
}

TEST(parity_sharding_models, mlp_and_net_are_sharded_alike) {
  for (const char* model : {"mlp", "net"}) {
    const Trained want = train_on_threads(2, digits(model), 6)[0];
    for (int stage : {1, 2, 3}) {
      const Sets sets = with_zero({}, {stage, nothing, false, false}, "");
      for (const Trained& got : train_on_threads(2, digits(model, sets), 6))
        EXPECT_LT(relative_distance(got.weights, want.weights), 1e-5) << model << stage;
    }
  }
}

TEST(parity_sharding_optimizers, each_one_steps_on_shards_as_on_wholes) {
  for (const char* type :
       {"SGD", "Adam", "AdamW", "AdaMod", "Lion", "RMSprop", "Adagrad", "Lars", "Lamb"}) {
    const Sets sets = {"optimizer.type=" + std::string(type), "optimizer.params={\"lr\": 0.01}"};
    const Trained want = train_on_threads(2, digits("mlp", sets), 6)[0];
    for (int stage : {1, 3})
      for (const Trained& got : train_on_threads(
               2, digits("mlp", with_zero(sets, {stage, nothing, false, false}, "")), 6))
        EXPECT_LT(relative_distance(got.weights, want.weights), 1e-5) << type << " " << stage;
  }
}

TEST(parity_sharding_accumulation, stages_2_and_3_reduce_each_micro_batch_and_stage_1_once) {
  PrivateFolder folder;
  const std::string corpus = write_corpus(folder);
  const Sets sets = {"train_batch_size=16", "gradient_accumulation_steps=4"};
  const Trained want = train_on_threads(1, tiny_gpt(corpus, {"train_batch_size=16"}), 6)[0];
  for (int stage : {1, 2, 3})
    for (const Trained& got : train_on_threads(
             2, tiny_gpt(corpus, with_zero(sets, {stage, nothing, false, false}, "")), 6))
      EXPECT_LT(relative_distance(got.weights, want.weights), 1e-4) << stage;
}

}  // namespace

}  // namespace sharding_test
