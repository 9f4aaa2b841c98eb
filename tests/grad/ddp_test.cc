// SPDX-License-Identifier: Apache-2.0
#include "trireme/grad/ddp.h"

#include <gtest/gtest.h>
#include <torch/optim/sgd.h>

#include "tests/grad/small_net.h"
#include "trireme/comm/start/run.h"
#include "trireme/grad/reducer.h"

namespace ddp_test {

using namespace trireme;
using namespace trireme::testing;

namespace {

void same_as_whole_batch(Group g, at::ScalarType t, double tolerance, DdpOptions options) {
  Small plain = make(1, t), net = make(uint64_t(1 + g.rank()), t);  // DDP must take rank 0's
  DistributedDataParallel ddp(net, g, options);
  const int64_t each = 4, n = g.size();
  auto whole = input(each * n, t);
  for (int step = 0; step < 3; ++step) {
    plain->zero_grad();
    net->zero_grad();
    plain->forward(whole).pow(2).mean().backward();
    net->forward(whole.narrow(0, g.rank() * each, each)).pow(2).mean().backward();
    for (auto& p : plain->named_parameters()) {
      auto got = net->named_parameters()[p.key()].grad(), want = p.value().grad();
      const double error = (got - want).norm().item<double>() / want.norm().item<double>();
      expect(error <= tolerance, p.key() + " differs by " + std::to_string(error));
    }
  }
}

}  // namespace

TEST(grad_ddp, gradients_equal_those_of_the_whole_batch_float64) {
  for (int n : {1, 2, 3, 4})
    run_threads(n, [](Group g) { same_as_whole_batch(g, at::kDouble, 1e-10, {}); });
}

TEST(grad_ddp, gradients_equal_those_of_the_whole_batch_float32_in_any_bucket_size) {
  for (size_t bytes : {size_t{1}, size_t{300}, size_t{1} << 20})
    run_threads(2, [bytes](Group g) {
      same_as_whole_batch(g, at::kFloat, 1e-5,
                          {.bucket_bytes = bytes, .first_bucket_bytes = bytes});
    });
}

TEST(grad_ddp, no_sync_accumulates_and_reduces_once) {
  run_threads(2, [](Group g) {
    Small plain = make(1), net = make(1);
    DistributedDataParallel ddp(net, g);
    auto whole = input(12);
    plain->forward(whole).pow(2).sum().backward();
    auto mine = whole.narrow(0, g.rank() * 6, 6);
    {
      auto guard = ddp.no_sync();
      net->forward(mine.narrow(0, 0, 2)).pow(2).sum().backward();
      net->forward(mine.narrow(0, 2, 2)).pow(2).sum().backward();
    }
    expect(ddp.reducer().stats().rounds == 0, "reduced inside no_sync");
    net->forward(mine.narrow(0, 4, 2)).pow(2).sum().backward();
    expect(ddp.reducer().stats().rounds == 1, "not one reduction");
    for (auto& p : plain->named_parameters())
      expect(torch::allclose(net->named_parameters()[p.key()].grad() * 2, p.value().grad(), 1e-10),
             p.key());
  });
}

TEST(grad_ddp, set_to_none_and_replaced_gradients_are_rebound) {
  run_threads(2, [](Group g) {
    Small net = make(1), plain = make(1);
    DistributedDataParallel ddp(net, g);
    auto x = input(4);
    plain->forward(x).pow(2).sum().backward();
    for (int round = 0; round < 3; ++round) {
      for (auto& p : net->parameters()) {
        if (round == 1) p.mutable_grad() = torch::Tensor();
        if (round == 2) p.mutable_grad() = torch::zeros_like(p);
      }
      if (round == 0) net->zero_grad();
      net->forward(x).pow(2).sum().backward();
      size_t i = 0;
      for (auto& p : net->parameters()) {
        expect(p.grad().data_ptr() == ddp.reducer().gradient(i++).data_ptr(),
               "not an alias of the bucket");
        p.grad().sum();
      }
      for (auto& p : plain->named_parameters())
        expect(torch::allclose(net->named_parameters()[p.key()].grad(), p.value().grad(), 1e-10),
               p.key());
      torch::optim::SGD(net->parameters(), 0.1).zero_grad();  // throws on views in 1.13
    }
  });
}

TEST(grad_ddp, second_backward_before_the_step_adds_the_mean) {
  run_threads(2, [](Group g) {
    Small net = make(1), plain = make(1);
    DistributedDataParallel ddp(net, g);
    auto x = input(8), mine = x.narrow(0, g.rank() * 4, 4);
    for (int i = 0; i < 2; ++i) {
      net->forward(mine).sum().backward();
      plain->forward(x).sum().backward();
    }
    for (auto& p : plain->named_parameters())
      expect(torch::allclose(net->named_parameters()[p.key()].grad() * 2, p.value().grad(), 1e-10),
             p.key());
  });
}

TEST(grad_ddp, models_that_differ_are_named_on_every_rank) {
  std::atomic<int> named{0};
  try {
    run_threads(2, [&](Group g) {
      Small net(g.rank() == 1 ? 18 : 17);
      try {
        DistributedDataParallel ddp(net, g);
      } catch (const Mismatch& e) {
        const std::string text = e.what();
        if (text.find("rank 0 has a.weight Float [17,9], rank 1 has a.weight Float [18,9]") !=
            std::string::npos)
          ++named;
        else
          throw Error(text);
      }
    });
  } catch (const std::exception& e) {
    FAIL() << e.what();
  }
  EXPECT_EQ(named, 2);
}

TEST(grad_ddp, buffers_follow_rank_0_after_backward) {
  run_threads(3, [](Group g) {
    Small net = make(1);
    {
      DistributedDataParallel ddp(net, g);
      net->seen.fill_(g.rank() + 10);
      net->forward(input(2)).sum().backward();
    }
    expect(net->seen.item<double>() == 10, "buffer is not rank 0's");
    DistributedDataParallel mean(net, g, {.buffers = BufferPolicy::mean});
    net->seen.fill_(g.rank());
    net->forward(input(2)).sum().backward();
    expect(net->seen.item<double>() == 1, "buffer is not the mean");
  });
}

TEST(grad_ddp, create_graph_is_refused_with_the_parameter_named) {
  run_threads(1, [](Group g) {
    Small net = make(1);
    DistributedDataParallel ddp(net, g);
    try {
      auto loss = net->forward(input(2)).pow(2).sum();
      loss.backward({}, true, true);
    } catch (const UsageError& e) {
      expect(std::string(e.what()).find("create_graph") != std::string::npos, e.what());
      return;
    }
    throw Error("not refused");
  });
}

TEST(grad_ddp, a_broken_backward_is_refused_until_reset) {
  run_threads(2, [](Group g) {
    Small net = make(1);
    DistributedDataParallel ddp(
        net, g,
        {.bucket_bytes = 1 << 20, .first_bucket_bytes = 1 << 20, .find_unused_parameters = true});
    auto x = input(4);
    auto out = net->forward(x);
    net->a->weight.register_hook(
        [](at::Tensor) -> at::Tensor { throw std::runtime_error("mine"); });
    EXPECT_THROW(out.sum().backward(), std::runtime_error);
    Small second = make(1);
    try {
      net->c(torch::ones({1, 17}, at::kDouble)).sum().backward();
      throw Error("not refused");
    } catch (const UsageError& e) {
      expect(std::string(e.what()).find("reset()") != std::string::npos, e.what());
    }
    ddp.reset();
    net->zero_grad();
    net->c(torch::ones({1, 17}, at::kDouble)).sum().backward();
    expect(net->c->weight.grad().defined(), "no gradient after reset");
  });
}

TEST(grad_ddp, buckets_are_rebuilt_once_in_the_order_of_arrival) {
  run_threads(2, [](Group g) {
    Small net = make(1);
    DistributedDataParallel ddp(net, g, {.bucket_bytes = 1, .first_bucket_bytes = 1});
    net->forward(input(2)).sum().backward();
    auto first = ddp.reducer().buckets();
    net->zero_grad();
    net->forward(input(2)).sum().backward();
    expect(first == ddp.reducer().buckets(), "rebuilt twice");
    expect(first.front()[0] >= 4 && first.back()[0] <= 1, "not last layer first");
  });
}

}  // namespace ddp_test
