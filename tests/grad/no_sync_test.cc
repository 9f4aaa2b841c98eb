// SPDX-License-Identifier: Apache-2.0
// What backwards inside of no_sync() added up is reduced by the one after it, whether or not that
// one comes to a parameter again.
#include <gtest/gtest.h>
#include <torch/nn/modules/embedding.h>

#include "tests/grad/small_net.h"
#include "trireme/grad/ddp.h"
#include "trireme/grad/join.h"
#include "trireme/grad/reducer.h"

namespace no_sync_test {

using namespace trireme;
using namespace trireme::testing;

namespace {

// Which micro-batches of a rank use b; the last one reduces.
using Uses = std::vector<std::vector<bool>>;

at::Tensor rows_of(int rank, size_t micro) {
  return (input(4) + rank + 10 * static_cast<double>(micro)).sin();
}

void equals_the_serial_sum(const Uses& uses, DdpOptions options, int rounds = 2) {
  const int n = static_cast<int>(uses.size());
  run_threads(n, [&](Group g) {
    Small net = make(1), plain = make(1);
    DistributedDataParallel ddp(net, g, options);
    for (int round = 0; round < rounds; ++round) {
      net->zero_grad();
      plain->zero_grad();
      const auto& mine = uses[static_cast<size_t>(g.rank())];
      for (size_t m = 0; m < mine.size(); ++m) {
        std::optional<DistributedDataParallel::NoSync> guard;
        if (m + 1 < mine.size()) guard.emplace(ddp);
        ddp.forward(net, rows_of(g.rank(), m), bool(mine[m])).pow(2).sum().backward();
      }
      for (int r = 0; r < n; ++r)
        for (size_t m = 0; m < uses[static_cast<size_t>(r)].size(); ++m)
          plain->forward(rows_of(r, m), uses[static_cast<size_t>(r)][m]).pow(2).sum().backward();
      expect_gradients(*net, *plain, 1.0 / n);
      expect(ddp.unused_parameters().empty(), "used, and called unused");
    }
  });
}

}  // namespace

TEST(grad_no_sync, a_parameter_used_only_inside_is_reduced) {
  for (bool find : {true, false})
    equals_the_serial_sum({{true, false}, {true, false}}, {.find_unused_parameters = find});
}

TEST(grad_no_sync, a_parameter_used_inside_on_one_rank_and_outside_on_the_other_is_reduced) {
  for (bool find : {true, false})
    equals_the_serial_sum({{true, false, false}, {false, false, true}},
                          {.find_unused_parameters = find});
}

TEST(grad_no_sync, a_parameter_used_only_inside_and_on_one_rank_only_is_reduced) {
  equals_the_serial_sum({{true, false}, {false, false}, {false, false}},
                        {.find_unused_parameters = true});
}

TEST(grad_no_sync, a_parameter_used_only_inside_is_reduced_under_a_static_graph) {
  equals_the_serial_sum({{true, false}, {true, false}}, {.static_graph = true}, 3);
}

TEST(grad_no_sync, what_a_rank_did_not_use_at_all_is_still_refused_by_name) {
  const auto said = what_ranks_throw(2, [](Group g) {
    Small net = make(1);
    DistributedDataParallel ddp(net, g);
    {
      auto guard = ddp.no_sync();
      net->forward(input(4), g.rank() == 0).sum().backward();
    }
    net->forward(input(4), false).sum().backward();
  });
  for (const auto& text : said)
    EXPECT_NE(text.find("'b.weight' (from 1 of 2), 'b.bias' (from 1 of 2)"), std::string::npos)
        << text;
}

TEST(grad_no_sync, a_gradient_dropped_before_the_reduction_is_no_use) {
  run_threads(2, [](Group g) {
    Small net = make(1);
    DistributedDataParallel ddp(net, g, {.find_unused_parameters = true});
    {
      auto guard = ddp.no_sync();
      net->forward(input(4)).sum().backward();
    }
    for (auto& p : net->parameters()) p.mutable_grad() = at::Tensor();
    net->forward(input(4), false).sum().backward();
    expect(!net->b->weight.grad().defined(), "undefined did not stay undefined");
    // And it is forgotten with its round.
    net->b->weight.mutable_grad() = torch::full_like(net->b->weight, 5.0 + g.rank());
    net->forward(input(4), false).sum().backward();
    expect(net->b->weight.grad().eq(5.0 + g.rank()).all().item<bool>(), "what it had changed");
  });
}

TEST(grad_no_sync, a_sparse_gradient_of_inside_only_is_reduced) {
  run_threads(2, [](Group g) {
    torch::nn::Embedding table(torch::nn::EmbeddingOptions(5, 2).sparse(true));
    torch::nn::Linear head(2, 1);
    const NamedTensors all{
        {"table", table->weight}, {"head.weight", head->weight}, {"head.bias", head->bias}};
    DistributedDataParallel ddp(all, {}, g, {.find_unused_parameters = true, .sparse = {"table"}});
    for (int round = 0; round < 2; ++round) {
      for (const auto& [name, p] : all) p.mutable_grad() = at::Tensor();
      if (g.rank() == 0) {
        auto guard = ddp.no_sync();
        table->forward(torch::tensor({1, 1, 3})).sum().backward();
      }
      head->forward(torch::ones({1, 2})).sum().backward();
      const at::Tensor want = torch::tensor({0., 1., 0., .5, 0.}, at::kFloat).unsqueeze(1);
      expect(table->weight.grad().defined() &&
                 table->weight.grad().to_dense().eq(want).all().item<bool>(),
             "not the mean of rank 0's rows");
    }
  });
}

TEST(grad_no_sync, an_accumulation_broken_off_by_the_end_of_the_batches_is_left_out_by_join) {
  run_threads(2, [](Group g) {
    Small net = make(1), plain = make(1);
    DistributedDataParallel ddp(net, g, {.find_unused_parameters = true});
    join({&ddp}, [&] {
      {
        auto guard = ddp.no_sync();
        net->forward(rows_of(g.rank(), 0)).sum().backward();
      }
      if (g.rank() == 1) return;
      net->forward(rows_of(0, 1), false).sum().backward();
      plain->forward(rows_of(0, 0)).sum().backward();
      plain->forward(rows_of(0, 1), false).sum().backward();
      expect_gradients(*net, *plain);
    });
  });
}

}  // namespace no_sync_test
