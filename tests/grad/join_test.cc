// SPDX-License-Identifier: Apache-2.0
#include "trireme/grad/join.h"

#include <gtest/gtest.h>
#include <torch/optim/sgd.h>

#include "tests/grad/small_net.h"
#include "trireme/grad/ddp.h"
#include "trireme/grad/reducer.h"

namespace join_test {

using namespace trireme;
using namespace trireme::testing;

namespace {

// Rank r's batches: `counts[r]` of them, of unequal sizes.
at::Tensor batch_of(int rank, int step) {
  return (torch::arange((2 + rank + step) * 9, at::kDouble).reshape({-1, 9}) + rank * 7 + step)
      .sin();
}

// One step of the serial run: the mean over the samples of all ranks that have a batch.
void serial_step(Small& plain, torch::optim::SGD& sgd, const std::vector<int>& counts, int step) {
  sgd.zero_grad();
  std::vector<at::Tensor> all;
  for (size_t r = 0; r < counts.size(); ++r)
    if (step < counts[r]) all.push_back(batch_of(static_cast<int>(r), step));
  plain->forward(torch::cat(all)).pow(2).sum(1).mean().backward();
  sgd.step();
}

void equals_the_serial_run(const std::vector<int>& counts, bool shadow_step) {
  run_threads(static_cast<int>(counts.size()), [&](Group g) {
    Small net = make(1), plain = make(1);
    DistributedDataParallel ddp(net, g, {.mean = GradientMean::of_weights});
    torch::optim::SGD ours(net->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9)),
        theirs(plain->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
    const int mine = counts[static_cast<size_t>(g.rank())],
              most = *std::max_element(counts.begin(), counts.end());
    JoinOptions options;
    if (shadow_step) options.shadow_step = [&] { ours.step(); };
    join(
        {&ddp},
        [&] {
          for (int step = 0; step < mine; ++step) {
            ours.zero_grad();
            const at::Tensor batch = batch_of(g.rank(), step);
            ddp.set_weight(static_cast<double>(batch.size(0)));
            net->forward(batch).pow(2).sum(1).sum().backward();
            ours.step();
            net->seen.fill_(100 * g.rank() + step);
          }
        },
        options);
    for (int step = 0; step < most; ++step) serial_step(plain, theirs, counts, step);
    for (auto& p : plain->named_parameters())
      expect(torch::allclose(net->named_parameters()[p.key()], p.value(), 1e-9, 1e-12), p.key());
  });
}

}  // namespace

TEST(grad_join, uneven_batches_of_unequal_sizes_equal_the_serial_run) {
  for (const auto& counts : std::vector<std::vector<int>>{
           {3, 3}, {5, 2}, {1, 4}, {0, 3}, {4, 0, 2}, {2, 6, 3, 6}, {0, 0}})
    for (bool shadow_step : {false, true}) {
      // With an optimizer that has a memory, the last to train has the right weights; those that
      // shadow its steps have them too.
      SCOPED_TRACE(std::to_string(counts[0]) + " batches on rank 0");
      if (*std::max_element(counts.begin(), counts.end()) > 0)
        equals_the_serial_run(counts, shadow_step);
      else
        run_threads(2, [](Group g) {
          Small net = make(1);
          DistributedDataParallel ddp(net, g);
          join({&ddp}, [] {});
          expect(ddp.reducer().stats().rounds == 1, "one round to find out");
        });
    }
}

TEST(grad_join, the_mean_of_ranks_is_over_those_that_have_a_batch) {
  run_threads(3, [](Group g) {
    Small net = make(1), plain = make(1);
    DistributedDataParallel ddp(net, g);
    join({&ddp}, [&] {
      for (int step = 0; step < (g.rank() == 1 ? 1 : 2); ++step) {
        net->zero_grad();
        plain->zero_grad();
        net->forward(input(4) + g.rank()).pow(2).mean().backward();
        for (int r : {0, 1, 2})
          if (step == 0 || r != 1)
            plain->forward(input(4) + r).pow(2).mean().div(step ? 2 : 3).backward();
        expect_gradients(*net, *plain);
      }
    });
  });
}

TEST(grad_join, weights_and_buffers_are_those_of_the_last_rank_that_trained) {
  run_threads(3, [](Group g) {
    Small net = make(1);
    DistributedDataParallel ddp(net, g);
    torch::optim::SGD sgd(net->parameters(), 0.1);
    join({&ddp}, [&] {
      for (int step = 0; step <= g.rank(); ++step) {
        sgd.zero_grad();
        net->seen.fill_(10 * g.rank() + step);
        net->forward(input(4)).pow(2).mean().backward();
        sgd.step();
      }
    });
    expect(net->seen.item<double>() == 22, "rank 2's buffer in its third step");
    at::Tensor all = torch::empty({3, 9 * 17}, at::kDouble);
    g.all_gather_into_tensor(all, net->a->weight.detach().contiguous()).wait();
    expect(all[0].equal(all[2]) && all[1].equal(all[2]), "weights differ");
  });
}

TEST(grad_join, a_mean_of_buffers_is_over_ranks_that_have_a_batch) {
  run_threads(3, [](Group g) {
    Small net = make(1);
    DistributedDataParallel ddp(net, g, {.buffers = BufferPolicy::mean});
    join({&ddp}, [&] {
      for (int step = 0; step < (g.rank() == 0 ? 1 : 2); ++step) {
        net->seen.fill_(10 * g.rank());
        net->forward(input(4)).sum().backward();
        expect(net->seen.item<double>() == (step == 0 ? 10 : 15), "the mean");
      }
    });
    expect(net->seen.item<double>() == 15, "the last mean, on every rank");
  });
}

TEST(grad_join, two_models_that_train_in_turn) {
  run_threads(2, [](Group g) {
    Small one = make(1), two = make(2), plain_one = make(1), plain_two = make(2);
    const DdpOptions weighted{.mean = GradientMean::of_weights};
    DistributedDataParallel a(one, g, weighted), b(two, g, weighted);
    join({&a, &b}, [&] {
      for (int step = 0; step < 2 + g.rank(); ++step) {
        for (auto* m : {&one, &two, &plain_one, &plain_two}) (*m)->zero_grad();
        a.set_weight(4);
        one->forward(input(4) + g.rank()).pow(2).sum().backward();
        b.set_weight(4);
        two->forward(one->forward(input(4) + g.rank()).detach().sum() + input(4)).sum().backward();
        for (int r = 0; r < 2; ++r) {
          if (step >= 2 + r) continue;
          const double samples = step < 2 ? 8 : 4;
          plain_one->forward(input(4) + r).pow(2).sum().div(samples).backward();
          const auto x = plain_one->forward(input(4) + r).detach().sum() + input(4);
          plain_two->forward(x).sum().div(samples).backward();
        }
        expect_gradients(*one, *plain_one);
        expect_gradients(*two, *plain_two);
      }
    });
  });
}

TEST(grad_join, throw_on_early_termination_names_the_first_rank_without_a_batch_on_all) {
  const auto said = what_ranks_throw(3, [](Group g) {
    Small net = make(1);
    DistributedDataParallel ddp(net, g);
    join({&ddp},
         [&] {
           for (int step = 0; step < (g.rank() == 1 ? 2 : 4); ++step) {
             net->zero_grad();
             net->forward(input(4)).sum().backward();
           }
         },
         {.throw_on_early_termination = true});
  });
  for (const auto& text : said)
    EXPECT_NE(text.find("UsageError: rank 1 had no batch for round 3 and others had"),
              std::string::npos)
        << text;
}

TEST(grad_join, an_error_of_the_loop_goes_through_and_the_others_are_told) {
  const auto said = what_ranks_throw(2, [](Group g) {
    Small net = make(1);
    DistributedDataParallel ddp(net, g);
    join({&ddp}, [&] {
      for (int step = 0; step < 3; ++step) {
        if (g.rank() == 1 && step == 1) throw ResourceError("no such file: train.bin");
        net->zero_grad();
        net->forward(input(4)).sum().backward();
      }
    });
  });
  EXPECT_EQ(said[1], "ResourceError: no such file: train.bin");
  EXPECT_EQ(said[0].rfind("Mismatch: rank 1 left after call", 0), 0u) << said[0];
}

TEST(grad_join, without_it_a_rank_that_stops_early_is_named_by_those_that_go_on) {
  const auto said = what_ranks_throw(3, [](Group g) {
    Small net = make(1);
    DistributedDataParallel ddp(net, g);
    for (int step = 0; step < (g.rank() == 2 ? 1 : 3); ++step) {
      net->zero_grad();
      net->forward(input(4)).sum().backward();
    }
  });
  EXPECT_EQ(said[2], "");
  for (size_t r : {0, 1})
    EXPECT_EQ(said[r].rfind("Mismatch: rank 2 left after call", 0), 0u) << said[r];
}

}  // namespace join_test
