// SPDX-License-Identifier: Apache-2.0
#include "trireme/grad/rounds/unused_parameters.h"

#include <gtest/gtest.h>
#include <torch/optim/sgd.h>

#include "tests/grad/small_net.h"
#include "trireme/base/log.h"
#include "trireme/grad/ddp.h"
#include "trireme/grad/reducer.h"

namespace unused_parameters_test {

using namespace trireme;
using namespace trireme::testing;

TEST(grad_unused_parameters, a_parameter_that_no_rank_used_keeps_what_it_had) {
  run_threads(2, [](Group g) {
    Small net = make(1);
    DistributedDataParallel ddp(net, g, {.find_unused_parameters = true});
    net->forward(input(4), false).sum().backward();
    expect(!net->b->weight.grad().defined(), "undefined did not stay undefined");
    expect(net->a->weight.grad().defined(), "used without gradient");
    net->b->weight.mutable_grad() = torch::full_like(net->b->weight, 5.0 + g.rank());
    net->forward(input(4), false).sum().backward();
    expect(net->b->weight.grad().eq(5.0 + g.rank()).all().item<bool>(), "what it had changed");
  });
}

TEST(grad_unused_parameters, a_parameter_used_on_one_rank_only_is_the_mean_on_all) {
  run_threads(2, [](Group g) {
    Small net = make(1), plain = make(1);
    DistributedDataParallel ddp(net, g, {.find_unused_parameters = true});
    auto x = input(4);
    net->forward(x, g.rank() == 0).sum().backward();
    plain->forward(x, true).sum().backward();
    expect(torch::allclose(net->b->weight.grad() * 2, plain->b->weight.grad(), 1e-10),
           "not half of rank 0's");
  });
}

TEST(grad_unused_parameters, are_refused_on_every_rank_in_the_same_step_with_their_names) {
  const auto said = what_ranks_throw(3, [](Group g) {
    Small net = make(1);
    DistributedDataParallel ddp(net, g);
    net->forward(input(4)).sum().backward();
    net->zero_grad();
    net->forward(input(4), g.rank() == 2).sum().backward();
  });
  for (const auto& text : said) {
    EXPECT_NE(text.find("UsageError: 2 parameters did not get a gradient from every rank"),
              std::string::npos)
        << text;
    EXPECT_NE(text.find("'b.weight' (from 1 of 3), 'b.bias' (from 1 of 3)"), std::string::npos)
        << text;
  }
}

TEST(grad_unused_parameters, after_the_refusal_gradients_are_reduced_and_the_next_round_is_sound) {
  run_threads(2, [](Group g) {
    Small net = make(1), plain = make(1);
    DistributedDataParallel ddp(net, g);
    EXPECT_THROW(net->forward(input(4), g.rank() == 0).sum().backward(), UsageError);
    plain->forward(input(4)).sum().backward();
    expect(torch::allclose(net->b->weight.grad() * 2, plain->b->weight.grad(), 1e-10), "the mean");
    net->zero_grad();
    net->forward(input(4)).sum().backward();
    expect_gradients(*net, *plain);
  });
}

TEST(grad_unused_parameters, are_listed_and_logged_by_rank_0_when_they_change) {
  std::mutex mutex;
  std::vector<std::string> lines;
  set_log_level(LogLevel::info);
  set_log_sink([&](LogLevel, std::string_view text) {
    std::lock_guard lock(mutex);
    lines.emplace_back(text);
  });
  run_threads(2, [](Group g) {
    Small net = make(1);
    DistributedDataParallel ddp(net, g, {.find_unused_parameters = true});
    for (bool use_b : {false, false, true, false}) {
      net->zero_grad();
      net->forward(input(4), use_b).sum().backward();
      const std::vector<std::string> want =
          use_b ? std::vector<std::string>{} : std::vector<std::string>{"b.weight", "b.bias"};
      expect(ddp.unused_parameters() == want, "unused_parameters()");
    }
  });
  set_log_sink({});
  set_log_level(LogLevel::warn);
  const std::vector<std::string> want = {
      "2 parameters got no gradient on any rank: b.weight, b.bias",
      "every parameter got a gradient again",
      "2 parameters got no gradient on any rank: b.weight, b.bias"};
  EXPECT_EQ(lines, want);
}

TEST(grad_unused_parameters, a_parameter_that_is_used_from_a_later_step_on_joins_then) {
  run_threads(2, [](Group g) {
    Small net = make(1), plain = make(1);
    DistributedDataParallel ddp(net, g, {.find_unused_parameters = true});
    torch::optim::SGD ours(net->parameters(), 0.1), theirs(plain->parameters(), 0.1);
    const auto whole = input(8), mine = whole.narrow(0, 4 * g.rank(), 4);
    for (int step = 0; step < 6; ++step) {
      ours.zero_grad();
      theirs.zero_grad();
      net->forward(mine, step >= 3).pow(2).mean().backward();
      plain->forward(whole, step >= 3).pow(2).mean().backward();
      ours.step();
      theirs.step();
    }
    for (auto& p : plain->named_parameters())
      expect(torch::allclose(net->named_parameters()[p.key()], p.value(), 1e-9, 1e-12), p.key());
  });
}

TEST(grad_unused_parameters, frozen_ones_are_neither_reduced_nor_missed) {
  run_threads(2, [](Group g) {
    Small net = make(1);
    for (auto& p : net->b->parameters()) p.set_requires_grad(false);
    net->b->weight.data().add_(g.rank());  // broadcast all the same
    DistributedDataParallel ddp(net, g);
    net->forward(input(4)).sum().backward();
    expect(!net->b->weight.grad().defined(), "a frozen parameter got a gradient");
    expect(ddp.reducer().size() == 4, "parameters that are reduced");
    Small plain = make(1);
    expect(net->b->weight.equal(plain->b->weight), "not rank 0's");
  });
}

}  // namespace unused_parameters_test
