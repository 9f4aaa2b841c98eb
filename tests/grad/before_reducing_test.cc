// SPDX-License-Identifier: Apache-2.0
// DdpOptions::before_reducing: a rank's own gradient, whole and not yet sent; clipping before a
// codec is made of it.
#include <gtest/gtest.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/utils/clip_grad.h>

#include <cmath>
#include <functional>
#include <stdexcept>
#include <vector>

#include "tests/grad/tied_net.h"
#include "trireme/grad/compression/compression.h"
#include "trireme/grad/ddp.h"
#include "trireme/grad/reducer.h"

namespace before_reducing_test {

using namespace trireme;
using namespace trireme::testing;

namespace {

constexpr double kOwnLimit = 0.5;  // smaller than any own_loss's gradient

at::Tensor own_loss(Small& net, int rank, int step = 0) {
  return (net->forward((input(4) + rank + 0.3 * step).sin()) * (1 + 3.0 * rank)).pow(2).mean();
}

/// What `backwards` leave in a net's gradients, clipped by torch, is added to `sum`.
template <class Net>
void add_clipped(Net& net, double max_norm, std::vector<at::Tensor>& sum,
                 const std::function<void()>& backwards) {
  const auto parameters = each_once(*net);
  for (auto p : parameters) p.mutable_grad() = at::Tensor();
  backwards();
  torch::nn::utils::clip_grad_norm_(parameters, max_norm);
  sum.resize(parameters.size());
  for (size_t i = 0; i < parameters.size(); ++i)
    sum[i] = sum[i].defined() ? sum[i] + parameters[i].grad() : parameters[i].grad().clone();
}

template <class Net>
void expect_mean(Net& net, const std::vector<at::Tensor>& sum, int ranks, const char* where) {
  const auto parameters = each_once(*net);
  for (size_t i = 0; i < parameters.size(); ++i)
    expect(torch::allclose(parameters[i].grad(), sum[i] / ranks, 1e-9, 1e-14), where);
}

}  // namespace

TEST(grad_before_reducing, clipping_each_rank_s_own_gradient_equals_the_serial_simulation) {
  for (int n : {1, 2, 4})
    run_threads(n, [n](Group g) {
      Small net = make(1), serial = make(1);
      std::vector<at::Tensor> sum;
      for (int r = 0; r < n; ++r)
        add_clipped(serial, kOwnLimit, sum, [&] { own_loss(serial, r).backward(); });
      const DistributedDataParallel* self = nullptr;
      int calls = 0;
      DistributedDataParallel ddp(
          net, g, {.bucket_bytes = 1, .first_bucket_bytes = 1, .before_reducing = [&] {
                     ++calls;
                     expect(!self->reducer().any_launched(), "a bucket was launched");
                     torch::nn::utils::clip_grad_norm_(net->parameters(), kOwnLimit);
                   }});
      self = &ddp;
      for (int round = 0; round < 3; ++round) {  // the second one's buckets are laid out anew
        ddp.zero_grad();
        own_loss(net, g.rank()).backward();
        expect(calls == round + 1, "not once a round");
        expect_mean(net, sum, n, "not the mean of what the ranks clipped");
      }
    });
}

TEST(grad_before_reducing, what_no_sync_added_up_is_clipped_as_one) {
  run_threads(2, [](Group g) {
    Small net = make(1), serial = make(1);
    std::vector<at::Tensor> sum;
    for (int r = 0; r < 2; ++r)
      add_clipped(serial, kOwnLimit, sum, [&] {
        for (int step = 0; step < 3; ++step) own_loss(serial, r, step).backward();
      });
    int calls = 0;
    DistributedDataParallel ddp(net, g, {.before_reducing = [&] {
                                  ++calls;
                                  torch::nn::utils::clip_grad_norm_(net->parameters(), kOwnLimit);
                                }});
    {
      auto guard = ddp.no_sync();
      own_loss(net, g.rank(), 0).backward();
      own_loss(net, g.rank(), 1).backward();
    }
    expect(calls == 0, "called inside no_sync");
    own_loss(net, g.rank(), 2).backward();
    expect(calls == 1, "not once");
    expect_mean(net, sum, 2, "not the mean of what the ranks clipped");
  });
}

TEST(grad_before_reducing, tied_weights_count_once_and_a_static_graph_waits_too) {
  run_threads(2, [](Group g) {
    TiedNet net = tied_net(), serial = tied_net();
    const auto loss = [](TiedNet& of, int r) { return mean_loss(of, tokens(6, r)) * (1 + 3 * r); };
    std::vector<at::Tensor> sum;
    for (int r = 0; r < 2; ++r) add_clipped(serial, 0.01, sum, [&] { loss(serial, r).backward(); });
    DistributedDataParallel ddp(net, g, {.static_graph = true, .before_reducing = [&] {
                                           torch::nn::utils::clip_grad_norm_(each_once(*net), 0.01);
                                         }});
    for (int round = 0; round < 3; ++round) {
      ddp.zero_grad();
      loss(net, g.rank()).backward();
      expect_mean(net, sum, 2, "not the mean of what the ranks clipped");
    }
  });
}

// Under a loss scale the limit is scaled: a power of two changes no bit.
TEST(grad_before_reducing, under_a_loss_scale_the_limit_is_times_the_scale) {
  run_threads(2, [](Group g) {
    std::vector<std::vector<at::Tensor>> gradients;
    for (double scale : {1.0, 1024.0}) {
      Small net = make(1);
      DistributedDataParallel ddp(net, g, {.before_reducing = [&] {
                                    double squares = 0;
                                    for (const auto& p : net->parameters())
                                      squares += p.grad().pow(2).sum().item<double>();
                                    const double norm = std::sqrt(squares) / scale;
                                    if (norm > kOwnLimit)
                                      for (auto& p : net->parameters())
                                        p.mutable_grad().mul_(kOwnLimit / norm);
                                  }});
      (own_loss(net, g.rank()) * scale).backward();
      gradients.emplace_back();
      for (const auto& p : net->parameters()) gradients.back().push_back(p.grad() / scale);
    }
    for (size_t i = 0; i < gradients[0].size(); ++i)
      expect(gradients[0][i].equal(gradients[1][i]), "the scale shows");
  });
}

// What clipping takes away is not kept to come back: after a burst the memory is that of a gradient
// of max_norm.
TEST(grad_before_reducing, error_feedback_keeps_nothing_of_what_was_clipped_away) {
  for (bool before : {true, false})
    run_threads(2, [before](Group g) {
      Small net = make(1, at::kFloat);
      NamedTensors parameters;
      for (const auto& item : net->named_parameters())
        parameters.emplace_back(item.key(), item.value());
      auto codec =
          make_compression({.type = "topk", .density = 0.1, .start_step = 0}, parameters, g);
      DdpOptions options{.hook = codec->hook()};
      if (before)
        options.before_reducing = [&] {
          torch::nn::utils::clip_grad_norm_(net->parameters(), kOwnLimit);
        };
      DistributedDataParallel ddp(net, g, options);
      (net->forward(input(4, at::kFloat)).pow(2).mean() * 1e4).backward();
      double squares = 0;
      for (size_t i = 0; i < parameters.size(); ++i)
        squares += codec->errors()->of(i).pow(2).sum().item<double>();
      expect(squares > 0, "nothing is kept");
      expect((std::sqrt(squares) <= kOwnLimit) == before, "kept: " + std::to_string(squares));
    });
}

TEST(grad_before_reducing, one_that_throws_is_told_on_all_with_its_words) {
  const auto said = what_ranks_throw(3, [](Group g) {
    Small net = make(1);
    DistributedDataParallel ddp(net, g, {.before_reducing = [rank = g.rank()] {
                                  if (rank == 1) throw std::runtime_error("no more ink");
                                }});
    net->forward(input(4)).sum().backward();
  });
  EXPECT_EQ(said[1], "std: no more ink");
  for (size_t r : {0, 2}) {
    EXPECT_EQ(said[r].rfind("PeerLost: ", 0), 0u) << said[r];
    EXPECT_NE(said[r].find("DdpOptions::before_reducing of rank 1 failed: no more ink"),
              std::string::npos)
        << said[r];
  }
}

TEST(grad_before_reducing, a_nan_that_it_makes_is_named) {
  const auto said = what_ranks_throw(2, [](Group g) {
    Small net = make(1);
    DistributedDataParallel ddp(net, g, {.check_finite = true, .before_reducing = [&] {
                                           if (g.rank() == 1)
                                             net->b->bias.mutable_grad().fill_(NAN);
                                         }});
    net->forward(input(4)).sum().backward();
  });
  for (const std::string& text : said)
    EXPECT_NE(text.find("'b.bias' on rank 1 is not finite"), std::string::npos) << text;
}

TEST(grad_before_reducing, leaves_do_not_go_with_it) {
  const auto said = what_ranks_throw(2, [](Group g) {
    at::Tensor w = at::ones({4}).requires_grad_();
    DistributedDataParallel ddp({{"w", w}}, {}, g, {.before_reducing = [] {}, .leaves = 2});
  });
  for (const std::string& text : said)
    EXPECT_EQ(text,
              "UsageError: DdpOptions::leaves does not go with DdpOptions::before_reducing: leave "
              "one out");
}

}  // namespace before_reducing_test
