// SPDX-License-Identifier: Apache-2.0
#include "trireme/grad/rounds/static_graph.h"

#include <gtest/gtest.h>
#include <torch/csrc/autograd/custom_function.h>

#include "tests/grad/small_net.h"
#include "trireme/grad/ddp.h"
#include "trireme/grad/reducer.h"

namespace static_graph_test {

using namespace trireme;
using namespace trireme::testing;

namespace {

// Runs a layer again inside backward, and a backward of its own there, as reentrant checkpointing
// does: the layer's parameters get one gradient for each use.
struct Reentrant : torch::autograd::Function<Reentrant> {
  static at::Tensor forward(torch::autograd::AutogradContext* ctx, at::Tensor x,
                            std::function<at::Tensor(at::Tensor)> f, at::Tensor) {
    ctx->saved_data["x"] = x.detach();
    fs().push_back(f);
    ctx->saved_data["f"] = static_cast<int64_t>(fs().size() - 1);
    at::NoGradGuard no_grad;
    return f(x);
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* ctx,
                                                 torch::autograd::variable_list grads) {
    at::Tensor x = ctx->saved_data["x"].toTensor().clone().requires_grad_(true);
    {
      at::AutoGradMode grad(true);
      fs()[static_cast<size_t>(ctx->saved_data["f"].toInt())](x).backward(grads[0]);
    }
    return {x.grad(), at::Tensor(), at::Tensor()};
  }
  static std::vector<std::function<at::Tensor(at::Tensor)>>& fs() {
    thread_local std::vector<std::function<at::Tensor(at::Tensor)>> list;
    return list;
  }
};

at::Tensor twice_through_b(Small& net, at::Tensor x, bool reentrant) {
  std::function<at::Tensor(at::Tensor)> f = [net](at::Tensor t) mutable {
    return torch::tanh(net->b(t));
  };
  x = torch::tanh(net->a(x));
  for (int i = 0; i < 2; ++i) x = reentrant ? Reentrant::apply(x, f, x) : f(x);
  return net->c(x).pow(2).mean();
}

}  // namespace

TEST(grad_static_graph, parameters_with_several_gradients_a_round_equal_the_whole_batch) {
  run_threads(2, [](Group g) {
    Small net = make(1), plain = make(1);
    DistributedDataParallel ddp(net, g,
                                {.bucket_bytes = 1, .first_bucket_bytes = 1, .static_graph = true});
    const auto whole = input(8), mine = whole.narrow(0, 4 * g.rank(), 4);
    for (int step = 0; step < 3; ++step) {
      net->zero_grad();
      plain->zero_grad();
      twice_through_b(net, mine, true).backward();
      twice_through_b(plain, whole, false).backward();
      expect_gradients(*net, *plain);
    }
  });
}

TEST(grad_static_graph, the_round_is_the_outer_backward_s_where_the_last_layer_runs_its_own) {
  run_threads(2, [](Group g) {
    Small net = make(1), plain = make(1);
    DistributedDataParallel ddp(net, g, {.static_graph = true});
    struct Last {  // c's gradients come first, from a backward inside of the backward
      Small net;
      Last* operator->() { return this; }
      at::Tensor forward(at::Tensor x) {
        std::function<at::Tensor(at::Tensor)> f = [net = net](at::Tensor t) mutable {
          return net->c(t);
        };
        x = torch::tanh(net->b(torch::tanh(net->a(x))));
        return Reentrant::apply(x, f, x);
      }
    } last{net};
    const auto whole = input(8), mine = whole.narrow(0, 4 * g.rank(), 4);
    for (int step = 0; step < 3; ++step) {
      net->zero_grad();
      plain->zero_grad();
      ddp.forward(last, mine).pow(2).mean().backward();
      plain->forward(whole).pow(2).mean().backward();
      expect(ddp.reducer().stats().rounds == step + 1, "not one round a backward");
      expect_gradients(*net, *plain);
    }
  });
}

TEST(grad_static_graph, without_it_a_second_gradient_is_refused_and_says_so) {
  const auto said = what_ranks_throw(1, [](Group g) {
    Small net = make(1);
    DistributedDataParallel ddp(net, g);
    twice_through_b(net, input(4), true).backward();
  });
  EXPECT_NE(said[0].find("got more gradients in this round than the 1 expected"), std::string::npos)
      << said[0];
  EXPECT_NE(said[0].find("static_graph"), std::string::npos);
}

TEST(grad_static_graph, a_parameter_used_twice_in_one_graph_needs_nothing) {
  run_threads(2, [](Group g) {
    Small net = make(1), plain = make(1);
    DistributedDataParallel ddp(net, g);
    const auto whole = input(8), mine = whole.narrow(0, 4 * g.rank(), 4);
    twice_through_b(net, mine, false).backward();
    twice_through_b(plain, whole, false).backward();
    expect_gradients(*net, *plain);
  });
}

TEST(grad_static_graph, buckets_wait_for_no_parameter_that_the_first_round_did_not_use) {
  run_threads(2, [](Group g) {
    Small net = make(1);
    DistributedDataParallel ddp(net, g,
                                {.bucket_bytes = 1, .first_bucket_bytes = 1, .static_graph = true});
    int64_t before_close = -1;
    net->a->weight.register_hook([&](at::Tensor t) {
      before_close = ddp.reducer().stats().launches;
      return t;
    });
    for (int round = 0; round < 2; ++round) {
      net->zero_grad();
      const int64_t launched = ddp.reducer().stats().launches;
      net->forward(input(4), false).sum().backward();
      before_close -= launched;
      // At least c's two in the second round; b's, unused, come after a's in rank 0's order.
      expect(round ? before_close >= 2 : before_close == 0,
             "launched during backward: " + std::to_string(before_close));
    }
  });
}

TEST(grad_static_graph, a_graph_that_changes_on_one_rank_is_told_on_all_with_its_name) {
  const auto said = what_ranks_throw(3, [](Group g) {
    Small net = make(1);
    DistributedDataParallel ddp(net, g, {.static_graph = true});
    net->forward(input(4)).sum().backward();
    net->zero_grad();
    net->forward(input(4), g.rank() != 1).sum().backward();
  });
  for (const auto& text : said)
    EXPECT_NE(text.find("Mismatch: static_graph: on rank 1 parameter 'b.weight' did not get as "
                        "many gradients in this round as in the first one"),
              std::string::npos)
        << text;
}

TEST(grad_static_graph, delayed_parameters_are_reduced_last_however_many_gradients_they_get) {
  run_threads(2, [](Group g) {
    Small net = make(1), plain = make(1);
    DistributedDataParallel ddp(net, g, {.delayed = {"b.*"}});
    const auto whole = input(8), mine = whole.narrow(0, 4 * g.rank(), 4);
    for (int step = 0; step < 2; ++step) {
      net->zero_grad();
      plain->zero_grad();
      twice_through_b(net, mine, true).backward();
      twice_through_b(plain, whole, false).backward();
      expect_gradients(*net, *plain);
    }
    const auto buckets = ddp.reducer().buckets();
    expect(buckets.size() == 2 && buckets[1].size() == 2, "b is not alone in the last bucket");
    for (int i : buckets[1])
      expect(ddp.reducer().name(static_cast<size_t>(i))[0] == 'b', "another one in its bucket");
  });
  const auto said = what_ranks_throw(1, [](Group g) {
    Small net = make(1);
    DistributedDataParallel ddp(net, g, {.delayed = {"d.*"}});
  });
  EXPECT_EQ(said[0], "UsageError: DdpOptions::delayed: no parameter matches 'd.*'");
}

}  // namespace static_graph_test
