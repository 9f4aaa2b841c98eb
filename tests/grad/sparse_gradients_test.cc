// SPDX-License-Identifier: Apache-2.0
#include "trireme/grad/rounds/sparse_gradients.h"

#include <gtest/gtest.h>
#include <torch/nn/modules/embedding.h>
#include <torch/optim/sgd.h>

#include "tests/grad/small_net.h"
#include "trireme/grad/ddp.h"
#include "trireme/grad/reducer.h"

namespace sparse_gradients_test {

using namespace trireme;
using namespace trireme::testing;

namespace {

struct WordsImpl : torch::nn::Module {
  explicit WordsImpl(bool sparse) {
    words = register_module(
        "words", torch::nn::Embedding(torch::nn::EmbeddingOptions(50, 4).sparse(sparse)));
    head = register_module("head", torch::nn::Linear(4, 3));
    at::NoGradGuard no_grad;
    words->weight.copy_(torch::arange(200).sin().view({50, 4}));
    head->weight.copy_(torch::arange(12).cos().view({3, 4}));
    head->bias.zero_();
    to(at::kDouble);
  }
  at::Tensor forward(at::Tensor ids) { return head(words(ids).mean(1)).pow(2); }
  torch::nn::Embedding words{nullptr};
  torch::nn::Linear head{nullptr};
};
TORCH_MODULE(Words);

at::Tensor ids_of(int rank, int step) {  // of unequal kinds of rows on ranks, some in common
  return (torch::arange(12).mul(1 + rank).add(step * 5) % 50).view({4, 3});
}

}  // namespace

TEST(grad_sparse_gradients, an_embedding_trains_as_over_the_whole_batch) {
  for (int n : {1, 2, 3})
    run_threads(n, [n](Group g) {
      Words net(true), plain(false);
      DistributedDataParallel ddp(net, g);
      torch::optim::SGD ours(net->parameters(), 0.1), theirs(plain->parameters(), 0.1);
      for (int step = 0; step < 4; ++step) {
        ours.zero_grad();
        theirs.zero_grad();
        net->forward(ids_of(g.rank(), step)).mean().backward();
        std::vector<at::Tensor> all;
        for (int r = 0; r < n; ++r) all.push_back(ids_of(r, step));
        plain->forward(torch::cat(all)).mean().backward();
        const at::Tensor grad = net->words->weight.grad();
        expect(grad.is_sparse() && grad.is_coalesced() && grad._nnz() < 50, "not sparse");
        expect(torch::allclose(grad.to_dense(), plain->words->weight.grad(), 1e-10, 1e-14),
               "the table's gradient");
        expect(torch::allclose(net->head->weight.grad(), plain->head->weight.grad(), 1e-10),
               "the head's gradient");
        ours.step();
        theirs.step();
      }
      expect(torch::allclose(net->words->weight, plain->words->weight, 1e-10), "the table");
    });
}

TEST(grad_sparse_gradients, accumulate_in_no_sync_and_are_the_same_bits_on_all_ranks) {
  run_threads(2, [](Group g) {
    Words net(true), plain(false);
    DistributedDataParallel ddp(net, g);
    {
      auto guard = ddp.no_sync();
      net->forward(ids_of(g.rank(), 0)).sum().backward();
    }
    net->forward(ids_of(g.rank(), 1)).sum().backward();
    for (int r = 0; r < 2; ++r)
      for (int step = 0; step < 2; ++step) plain->forward(ids_of(r, step)).sum().backward();
    const at::Tensor mine = net->words->weight.grad().to_dense();
    expect(torch::allclose(mine * 2, plain->words->weight.grad(), 1e-10), "the sum");
    at::Tensor both = torch::empty({2, 50, 4}, at::kDouble);
    g.all_gather_into_tensor(both, mine).wait();
    expect(both[0].equal(both[1]), "ranks differ");
  });
}

TEST(grad_sparse_gradients, a_model_of_nothing_else_works_and_what_no_rank_used_is_named) {
  run_threads(2, [](Group g) {
    at::Tensor table = torch::ones({6, 2}, at::kDouble).requires_grad_(true),
               other = torch::ones({6, 2}, at::kDouble).requires_grad_(true);
    DistributedDataParallel ddp({{"table", table}, {"other", other}}, {}, g,
                                {.find_unused_parameters = true, .sparse = {"*"}});
    auto ids = torch::full({1}, g.rank(), at::kLong);
    torch::embedding(table, ids, -1, false, true).sum().backward();
    expect(table.grad()._nnz() == 2, "rows of both ranks");
    expect(table.grad().to_dense().sum().item<double>() == 2, "mean of both");
    expect(!other.grad().defined(), "a gradient out of nothing");
    expect(ddp.unused_parameters() == std::vector<std::string>{"other"}, "unused");
  });
}

TEST(grad_sparse_gradients, one_that_is_dense_on_a_rank_is_told_on_all) {
  const auto said = what_ranks_throw(2, [](Group g) {
    at::Tensor table = torch::ones({6, 2}, at::kDouble).requires_grad_(true);
    DistributedDataParallel ddp({{"table", table}}, {}, g, {.sparse = {"table"}});
    auto ids = torch::full({1}, g.rank(), at::kLong);
    torch::embedding(table, ids, -1, false, g.rank() == 0).sum().backward();
  });
  for (const auto& text : said)
    EXPECT_NE(text.find("UsageError: the gradient of 'table' is dense on rank 1"),
              std::string::npos)
        << text;
}

TEST(grad_sparse_gradients, one_that_was_not_announced_says_what_to_set) {
  const auto said = what_ranks_throw(1, [](Group g) {
    at::Tensor table = torch::ones({6, 2}, at::kDouble).requires_grad_(true);
    DistributedDataParallel ddp({{"table", table}}, {}, g);
    torch::embedding(table, torch::zeros({1}, at::kLong), -1, false, true).sum().backward();
  });
  EXPECT_NE(said[0].find("name it in DdpOptions::sparse"), std::string::npos) << said[0];
}

}  // namespace sparse_gradients_test
