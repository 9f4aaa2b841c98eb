// SPDX-License-Identifier: Apache-2.0
// Micro-batches of unequal numbers of tokens, on any number of ranks, are one big batch.
#include <gtest/gtest.h>

#include "tests/grad/small_net.h"
#include "trireme/grad/ddp.h"
#include "trireme/grad/reducer.h"

namespace accumulation_test {

using namespace trireme;
using namespace trireme::testing;

namespace {

int64_t tokens(int rank, int micro) { return 1 + (rank * 5 + micro * 3) % 7; }

at::Tensor rows(int rank, int micro) {
  return (torch::arange(tokens(rank, micro) * 9, at::kDouble).reshape({-1, 9}) + rank + 10 * micro)
      .sin();
}

}  // namespace

TEST(grad_accumulation, unequal_micro_batches_equal_the_big_batch_with_one_reduction_a_step) {
  for (int n : {1, 2, 4})
    run_threads(n, [n](Group g) {
      constexpr int kMicro = 3;
      Small net = make(1), plain = make(1);
      DistributedDataParallel ddp(net, g, {.mean = GradientMean::of_weights});
      for (int step = 0; step < 3; ++step) {
        net->zero_grad();
        plain->zero_grad();
        const int64_t launches = ddp.reducer().stats().launches;
        for (int m = 0; m < kMicro; ++m) {
          auto backward = [&] {
            const at::Tensor x = rows(g.rank(), m + step);
            ddp.set_weight(static_cast<double>(x.size(0)));
            net->forward(x).pow(2).sum().backward();
          };
          if (m + 1 < kMicro) {
            auto guard = ddp.no_sync();
            backward();
          } else {
            backward();
          }
        }
        std::vector<at::Tensor> all;
        for (int r = 0; r < n; ++r)
          for (int m = 0; m < kMicro; ++m) all.push_back(rows(r, m + step));
        const at::Tensor whole = torch::cat(all);
        plain->forward(whole).pow(2).sum(1).mean().backward();
        expect_gradients(*net, *plain);
        expect(ddp.total_weight() == static_cast<double>(whole.size(0)), "total_weight()");
        expect(ddp.reducer().stats().rounds == step + 1, "not one reduction");
        expect(ddp.reducer().stats().launches - launches ==
                   static_cast<int64_t>(ddp.reducer().buckets().size()),
               "not one launch a bucket");
      }
    });
}

TEST(grad_accumulation, weights_are_exact_beyond_what_a_half_gradient_can_hold) {
  run_threads(2, [](Group g) {
    Small net = make(1, at::kBFloat16);
    DistributedDataParallel ddp(net, g, {.mean = GradientMean::of_weights});
    ddp.set_weight(100003 + g.rank());
    net->forward(input(4, at::kBFloat16)).sum().backward();
    expect(ddp.total_weight() == 200007, "total_weight()");
  });
}

TEST(grad_accumulation, weigh_without_the_option_is_refused) {
  const auto said = what_ranks_throw(1, [](Group g) {
    Small net = make(1);
    DistributedDataParallel ddp(net, g);
    ddp.set_weight(3);
  });
  EXPECT_NE(said[0].find("UsageError: set_weight() needs DdpOptions::mean"), std::string::npos)
      << said[0];
}

TEST(grad_accumulation, no_sync_nests) {
  run_threads(2, [](Group g) {
    Small net = make(1);
    DistributedDataParallel ddp(net, g);
    {
      auto outer = ddp.no_sync();
      { auto inner = ddp.no_sync(); }
      net->forward(input(4)).sum().backward();
      expect(ddp.reducer().stats().rounds == 0, "reduced inside the outer no_sync");
    }
    net->forward(input(4)).sum().backward();
    expect(ddp.reducer().stats().rounds == 1, "not reduced after it");
  });
}

}  // namespace accumulation_test
