// SPDX-License-Identifier: Apache-2.0
// Reproducible mode: the same bits on any power of two of ranks, as threads or as processes.
#include "trireme/train/setup/reproducible.h"

#include <gtest/gtest.h>
#include <openssl/evp.h>
#include <torch/nn/modules/dropout.h>

#include <cstdlib>
#include <set>

#include "tests/train/small_runs.h"
#include "trireme/base/error.h"
#include "trireme/checkpoint/safetensors.h"
#include "trireme/train/precision/precision.h"

namespace reproducible_test {

using namespace trireme;
using namespace trireme::testing;

namespace {

Sets reproducible(Sets more = {}) {
  more.insert(more.end(), {"training.reproducible=true", "training.leaves=8"});
  return more;
}

std::string sha256(const NamedTensors& weights) {
  EVP_MD_CTX* context = EVP_MD_CTX_new();
  EVP_DigestInit_ex(context, EVP_sha256(), nullptr);
  for (const auto& [name, w] : weights) {
    EVP_DigestUpdate(context, name.data(), name.size());
    EVP_DigestUpdate(context, w.data_ptr(), w.nbytes());
  }
  unsigned char bytes[EVP_MAX_MD_SIZE];
  unsigned int size = 0;
  EVP_DigestFinal_ex(context, bytes, &size);
  EVP_MD_CTX_free(context);
  std::string text;
  for (unsigned int i = 0; i < size; ++i) text += fmt::format("{:02x}", bytes[i]);
  return text;
}

/// Trains on 1, 2, 4 and 8 thread ranks; every rank of every world must end with the same bits.
/// Returns them.
Trained same_on_every_world(const Config& config) {
  const Trained alone = train_on_threads(1, config, 6).at(0);
  for (int n : {2, 4, 8}) {
    const auto ranks = train_on_threads(n, config, 6);
    for (int r = 0; r < n; ++r) {
      EXPECT_EQ(first_difference(ranks[size_t(r)].first_gradients, alone.first_gradients), "")
          << "gradient of step 1, rank " << r << " of " << n;
      EXPECT_EQ(first_difference(ranks[size_t(r)].weights, alone.weights), "")
          << "rank " << r << " of " << n;
      EXPECT_EQ(ranks[size_t(r)].norms, alone.norms) << "rank " << r << " of " << n;
    }
  }
  return alone;
}

/// So that the same start on every rank alone cannot be what passes.
void expect_moved(const Trained& result, const Config& config) {
  NamedTensors start;
  run_threads(1, [&](Group g) { start = weights_of(build_run(config, g)); });
  EXPECT_EQ(start.size(), result.weights.size());
  for (size_t i = 0; i < start.size(); ++i)
    EXPECT_FALSE(start[i].second.equal(result.weights[i].second)) << start[i].first;
}

}  // namespace

TEST(parity_reproducible, a_gpt_with_dropout_ends_with_the_same_bits_on_1_2_4_and_8_ranks) {
  PrivateFolder folder;
  const Config config = tiny_gpt(write_corpus(folder), reproducible());
  const Trained alone = same_on_every_world(config);
  EXPECT_GT(alone.norms.at(0), 0.5) << "clipping does not bite";
  expect_moved(alone, config);
}

TEST(parity_reproducible, an_mlp_with_sgd_ends_with_the_same_bits_on_1_2_4_and_8_ranks) {
  const Config config = digits("mlp", reproducible());
  expect_moved(same_on_every_world(config), config);
}

TEST(parity_reproducible, the_net_ends_with_the_same_bits_on_1_2_4_and_8_ranks) {
  const Config config = digits("net", reproducible());
  expect_moved(same_on_every_world(config), config);
}

TEST(parity_reproducible, the_sha256_of_the_weights_is_one_over_world_sizes_and_accumulations) {
  PrivateFolder folder;
  const std::string corpus = write_corpus(folder);
  std::set<std::string> hashes;
  for (int n : {1, 2, 4, 8}) {
    const auto ranks = train_on_threads(n, tiny_gpt(corpus, reproducible()), 8);
    const std::string hash = sha256(ranks.back().weights);
    std::printf("%d rank%s, %d leaves each: %s\n", n, n == 1 ? "" : "s", 8 / n, hash.c_str());
    hashes.insert(hash);
  }
  EXPECT_EQ(hashes.size(), 1u);
}

TEST(parity_reproducible, recomputing_blocks_does_not_show) {
  PrivateFolder folder;
  const std::string corpus = write_corpus(folder);
  const auto plain = train_on_threads(1, tiny_gpt(corpus, reproducible()), 4);
  const auto again =
      train_on_threads(4, tiny_gpt(corpus, reproducible({"training.recompute_every=1"})), 4);
  EXPECT_EQ(first_difference(again[3].weights, plain[0].weights), "");
}

TEST(parity_reproducible, a_stock_dropout_is_refused_and_ours_is_named) {
  struct Stock : Model {
    Stock() { register_module("drop", torch::nn::Dropout(0.1)); }
    at::Tensor forward(const at::Tensor& x) override { return x; }
    at::Tensor loss_sum(const at::Tensor& y, const at::Tensor&) override { return y.sum(); }
  };
  run_threads(2, [](Group g) {
    try {
      check_reproducible(g, 2, {}, Stock());
      ADD_FAILURE() << "not refused";
    } catch (const UsageError& e) {
      EXPECT_STREQ(e.what(),
                   "training.reproducible: 'drop' is a torch::nn::Dropout, which draws from "
                   "LibTorch's generator: what it draws depends on the split into ranks. Take "
                   "trireme::Dropout, which is keyed by sample");
    }
  });
}

TEST(parity_reproducible, a_backend_that_adds_in_an_order_of_its_own_is_refused) {
  InitOptions options;
  options.backend = "fake";
  options.rank = 0;
  options.world_size = 2;
  Group two = init_process_group(options);
  try {
    check_reproducible(two, 2, {}, *build_model(digits("mlp")));
    ADD_FAILURE() << "not refused";
  } catch (const UsageError& e) {
    EXPECT_NE(std::string(e.what()).find("the fake backend adds in an order of its own"),
              std::string::npos)
        << e.what();
  }
}

TEST(parity_reproducible, bucket_sizes_do_not_show) {
  PrivateFolder folder;
  const std::string corpus = write_corpus(folder);
  const auto one = train_on_threads(2, tiny_gpt(corpus, reproducible({"comm.bucket_mb=64"})), 4);
  const auto many =
      train_on_threads(2, tiny_gpt(corpus, reproducible({"comm.bucket_mb=0.004"})), 4);
  EXPECT_EQ(first_difference(one[0].weights, many[1].weights), "");
}

TEST(parity_reproducible, another_seed_gives_other_bits) {
  PrivateFolder folder;
  const std::string corpus = write_corpus(folder);
  const auto a = train_on_threads(1, tiny_gpt(corpus, reproducible()), 2);
  const auto b = train_on_threads(1, tiny_gpt(corpus, reproducible({"training.seed=43"})), 2);
  EXPECT_NE(first_difference(a[0].weights, b[0].weights), "");
}

TEST(parity_reproducible, another_run_with_the_same_seed_gives_the_same_bits) {
  PrivateFolder folder;
  const std::string corpus = write_corpus(folder);
  for (const Sets& sets : {Sets{}, reproducible()}) {  // plain mode too, on the same ranks
    const auto a = train_on_threads(2, tiny_gpt(corpus, sets), 3);
    const auto b = train_on_threads(2, tiny_gpt(corpus, sets), 3);
    EXPECT_EQ(first_difference(a[0].weights, b[0].weights), "");
    EXPECT_EQ(first_difference(a[0].weights, a[1].weights), "") << "ranks differ";
  }
}

TEST(parity_reproducible, without_it_another_split_agrees_within_rounding) {
  PrivateFolder folder;
  const std::string corpus = write_corpus(folder);
  const auto one = train_on_threads(1, tiny_gpt(corpus), 3);
  const auto four = train_on_threads(4, tiny_gpt(corpus), 3);
  EXPECT_LT(relative_distance(four[2].first_gradients, one[0].first_gradients), 1e-5);
  for (size_t i = 0; i < one[0].losses.size(); ++i)
    EXPECT_NEAR(four[0].losses[i], one[0].losses[i], 1e-4 * one[0].losses[i]) << "step " << i + 1;
}

TEST(parity_reproducible, what_cannot_be_is_refused) {
  run_threads(3, [](Group g) {
    try {
      build_run(digits("mlp", {"training.reproducible=true", "train_batch_size=12"}), g);
      ADD_FAILURE() << "three ranks";
    } catch (const UsageError& error) {
      EXPECT_NE(std::string(error.what()).find("powers of two"), std::string::npos) << error.what();
    }
  });
}

// A rank is this program started again: it finds the folder in the environment.
TEST(parity_reproducible, one_two_and_four_processes_and_threads_in_them_end_with_the_same_bits) {
  constexpr const char* kFolder = "TRIREME_TEST_PARITY_FOLDER";
  const bool is_rank = std::getenv("TRIREME_SPAWN") != nullptr;
  std::unique_ptr<PrivateFolder> own;
  if (!is_rank) {
    own = std::make_unique<PrivateFolder>();
    write_corpus(*own);
    ::setenv(kFolder, own->path().c_str(), 1);
  }
  const std::string folder = std::getenv(kFolder);
  const Config gpt = tiny_gpt(folder + "/text.txt", reproducible()),
               mlp = digits("mlp", reproducible());
  auto file = [&](const std::string& what, int world, int rank) {
    return folder + "/" + what + std::to_string(world) + "." + std::to_string(rank);
  };
  SpawnOptions options;
  options.timeout = std::chrono::seconds(60);
  options.args = {"--gtest_filter=parity_reproducible.one_two_and_four_processes_*"};
  for (int n : {1, 2, 4})
    spawn(
        n,
        [&](Group g) {
          write_safetensors(file("gpt", n, g.rank()), train_on(gpt, g, 6).weights);
          write_safetensors(file("mlp", n, g.rank()), train_on(mlp, g, 6).weights);
          if (n == 1)
            write_safetensors(file("gpt", 8, 0), train_on_threads(4, gpt, 6).at(3).weights);
        },
        options);
  const std::string gpt_bytes = read_file(file("gpt", 1, 0)),
                    mlp_bytes = read_file(file("mlp", 1, 0));
  for (int n : {2, 4})
    for (int r = 0; r < n; ++r) {
      EXPECT_TRUE(read_file(file("gpt", n, r)) == gpt_bytes) << "rank " << r << " of " << n;
      EXPECT_TRUE(read_file(file("mlp", n, r)) == mlp_bytes) << "rank " << r << " of " << n;
    }
  EXPECT_TRUE(read_file(file("gpt", 8, 0)) == gpt_bytes) << "4 threads against 1 process";
  ::unsetenv(kFolder);
}

}  // namespace reproducible_test
