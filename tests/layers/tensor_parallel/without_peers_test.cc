// SPDX-License-Identifier: Apache-2.0
// Layers of one rank without a group, and of ranks that do not exist.
#include <gtest/gtest.h>

#include <cmath>

#include "trireme/comm/start/run.h"
#include "trireme/layers/tensor_parallel/block.h"
#include "trireme/layers/tensor_parallel/cross_entropy.h"
#include "trireme/layers/tensor_parallel/embedding.h"
#include "trireme/models/init.h"

namespace without_peers_test {

using namespace trireme;

namespace {

struct NetImpl : torch::nn::Module {
  explicit NetImpl(const TensorParallel& tp)
      : words(register_module("words", std::make_shared<VocabParallelEmbedding>(tp, 30, 24))),
        positions(register_module("positions", std::make_shared<ParallelPositions>(tp, 9, 24))),
        block(register_module(
            "block", std::make_shared<ParallelBlock>(
                         tp, ParallelBlockOptions{.width = 24, .heads = 4, .kv_heads = 1}))),
        tp_(tp) {}
  at::Tensor loss(const at::Tensor& ids) {
    const at::Tensor x =
        block->forward(positions->forward(words->forward(ids), ids.size(1)), ids.size(1));
    return vocab_parallel_cross_entropy(words->logits(x, ids.size(1)), ids, 30, tp_);
  }
  std::shared_ptr<VocabParallelEmbedding> words;
  std::shared_ptr<ParallelPositions> positions;
  std::shared_ptr<ParallelBlock> block;
  TensorParallel tp_;
};
TORCH_MODULE(Net);

TEST(layers_tensor_parallel_without_peers, one_rank_computes_what_a_group_of_one_computes) {
  const at::Tensor ids = torch::arange(18).reshape({2, 9}) % 30;
  const auto gradients = [&](const TensorParallel& tp) {
    Net net(tp);
    init_unset(*net, 7);
    const at::Tensor loss = net->loss(ids);
    loss.backward();
    std::vector<at::Tensor> all{loss.detach()};
    for (const auto& p : net->parameters()) all.push_back(p.grad());
    return all;
  };
  const auto alone = gradients(TensorParallel::alone());
  run_threads(1, [&](Group g) {
    const auto group = gradients(TensorParallel(g));
    ASSERT_EQ(group.size(), alone.size());
    for (size_t i = 0; i < alone.size(); ++i) EXPECT_TRUE(group[i].equal(alone[i])) << i;
  });
}

TEST(layers_tensor_parallel_without_peers, imagined_ranks_have_the_parts_of_real_ones) {
  for (const bool sequence : {false, true})
    for (const int ranks : {2, 4})
      run_threads(ranks, [&](Group g) {
        Net real(TensorParallel(g, {.sequence_parallel = sequence}));
        Net imagined(TensorParallel::imagined(g.rank(), ranks, {.sequence_parallel = sequence}));
        EXPECT_EQ(layouts_of(*imagined), layouts_of(*real));
      });
}

TEST(layers_tensor_parallel_without_peers, unset_parameters_begin_alike_and_set_ones_stay) {
  Net whole(TensorParallel::alone());
  init_unset(*whole, 7, "net.");
  for (const auto& item : whole->named_parameters())
    EXPECT_FALSE(item.value().isnan().any().item<bool>()) << item.key();
  run_threads(4, [&](Group g) {
    Net part((TensorParallel(g)));
    {
      at::NoGradGuard no_grad;
      part->positions->weight.fill_(3);
    }
    init_unset(*part, 7, "net.");
    const auto layouts = layouts_of(*part);
    for (const auto& item : part->named_parameters()) {
      if (item.key() == "positions.weight") continue;
      EXPECT_TRUE(item.value().equal(
          part_of(*whole->named_parameters().find(item.key()), layouts.at(item.key()))))
          << item.key();
    }
    EXPECT_TRUE(part->positions->weight.eq(3).all().item<bool>());
  });
  // As torch::nn::Linear and torch::nn::Embedding begin.
  const auto deviation = [&](const std::string& name) {
    return whole->named_parameters().find(name)->std().item<double>();
  };
  EXPECT_NEAR(deviation("words.weight"), 1, 0.1);
  EXPECT_NEAR(deviation("block.mlp.up.weight"), 1 / std::sqrt(3 * 24.0), 0.01);
  EXPECT_NEAR(deviation("block.mlp.down.weight"), 1 / std::sqrt(3 * 96.0), 0.005);
}

}  // namespace
}  // namespace without_peers_test
