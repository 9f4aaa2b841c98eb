// SPDX-License-Identifier: Apache-2.0
#include "trireme/shard/fully_sharded.h"

#include <gtest/gtest.h>

#include <limits>

#include "tests/shard/sharded_tower.h"
#include "trireme/layers/sync_batch_norm.h"
#include "trireme/shard/fully_shard.h"
#include "trireme/shard/gradient_scatter.h"
#include "trireme/shard/sharded_optimizer.h"
#include "trireme/tensor/recompute/recompute.h"

namespace fully_sharded_test {

using namespace trireme;
using namespace trireme::testing;

namespace {

TEST(shard_fully_sharded, training_is_the_serial_run) {
  auto want = serial_adamw();
  for (int n : {1, 2, 4})
    for (bool reshard : {true, false})
      for (int64_t prefetch : {int64_t{0}, kBlock, 2 * kBlock})
        run_threads(n, [&](Group g) {
          ShardedTower net(static_cast<uint64_t>(g.rank()) + 1, g,
                           {.reshard_after_forward = reshard, .prefetch_elements = prefetch});
          train(net, g);
          net.expect_same(*want);
        });
}

TEST(shard_fully_sharded, hybrid_shards_are_the_serial_run) {
  auto want = serial_adamw();
  run_threads(4, [&](Group g) {
    Group shards = g.split(g.rank() / 2), replicas = g.split(g.rank() % 2);
    ShardedTower net(1, {shards, replicas, g});
    train(net, g);
    net.expect_same(*want);
  });
}

TEST(shard_fully_sharded, outside_of_run_parameters_have_shapes_and_no_bytes) {
  run_threads(2, [&](Group g) {
    ShardedTower net(1, g);
    auto no_bytes = [&](const char* when) {
      for (const auto& item : net.tower->named_parameters()) {
        expect(item.value().data_ptr() == nullptr, std::string(when) + ": " + item.key());
        expect(item.value().numel() > 0, "shapes");
      }
    };
    no_bytes("at first");
    train(net, g, 2);
    no_bytes("after steps");
    at::NoGradGuard no_grad;
    net.forward(input(3));
    no_bytes("after evaluation");
  });
}

TEST(shard_fully_sharded, a_block_is_whole_only_while_it_computes) {
  run_threads(2, [&](Group g) {
    ShardedTower net(1, g, {.prefetch_elements = 0});
    auto plain = net.tower->run_block;
    int most = 0;
    net.tower->run_block = [&](size_t i, const at::Tensor& x) {
      const at::Tensor y = plain(i, x);
      int whole = 0;
      for (const auto& b : net.tower->blocks) whole += b->up->weight.data_ptr() != nullptr;
      most = std::max(most, whole);
      return y;
    };
    at::Tensor loss = loss_of(net.forward(part(rows_of_step(0), g)));
    expect(most == 0, "behind its forward a block is dropped");
    expect(net.tower->to->weight.data_ptr() != nullptr, "the root is whole until backward ends");
    loss.backward();
    expect(net.tower->to->weight.data_ptr() == nullptr, "and no longer");
    // One gather buffer for the root, one for the block that computes.
    const FullySharded::Stats stats = net.sharded.stats();
    expect(stats.gathers == 1 + 4 + 4, "gathers " + std::to_string(stats.gathers));
    expect(stats.gather_buffer_bytes == (kBlock + 4 * 1024) * 8,
           "gather buffers " + std::to_string(stats.gather_buffer_bytes));
  });
}

TEST(shard_fully_sharded, after_backward_only_shards_of_gradients_exist) {
  run_threads(2, [&](Group g) {
    ShardedTower net(1, g);
    loss_of(net.forward(part(rows_of_step(0), g))).backward();
    for (const auto& p : net.tower->parameters()) expect(!p.grad().defined(), "whole gradient");
    int64_t numel = 0;
    for (const auto& [name, t] : net.sharded.shards()) numel += t.grad().numel();
    at::Tensor sum = torch::tensor({numel});
    g.all_reduce(sum).wait();
    int64_t all = 0;
    for (const auto& p : net.tower->parameters()) all += p.numel();
    expect(sum.item<int64_t>() == all, "shards make up the gradient");
  });
}

TEST(shard_fully_sharded, units_after_the_first_step_are_asked_for_ahead) {
  run_threads(2, [&](Group g) {
    ShardedTower net(1, g, {.prefetch_elements = kBlock});
    train(net, g, 1);
    const int64_t first = net.sharded.stats().prefetched;
    expect(first == 3, "in backward at once: " + std::to_string(first));
    train(net, g, 1);
    expect(net.sharded.stats().prefetched == first + 4 + 3, "then in forward too");
  });
}

TEST(shard_fully_sharded, small_parameters_are_left_to_the_root) {
  auto want = serial_adamw();
  run_threads(2, [&](Group g) {
    ShardedTower net(1, g, {.persistence_threshold = 100});
    bool bias = false, weight = false;
    at::Tensor y = net.sharded.run(
        [&](const at::Tensor& x) {
          bias = net.tower->blocks[0]->up->bias.data_ptr() != nullptr;
          weight = net.tower->blocks[0]->up->weight.data_ptr() != nullptr;
          return net.tower->forward(x);
        },
        part(rows_of_step(0), g));
    expect(bias && !weight, "in the root's forward biases are whole, a block's matrix is not");
    net.sharded.reset();
    train(net, g);
    net.expect_same(*want);
  });
}

TEST(shard_fully_sharded, recomputation_inside_and_around_a_unit_gives_the_same) {
  auto want = serial_adamw();
  for (bool inside : {true, false})
    for (int n : {1, 2})
      run_threads(n, [&](Group g) {
        ShardedTower net(1, g);
        auto& units = net.units;
        net.tower->run_block = [&](size_t i, const at::Tensor& x) {
          auto block = units[i].module();
          const auto parameters = block->parameters();
          if (inside)
            return units[i].unit().run(
                [&](const at::Tensor& in) {
                  return recompute([block](const at::Tensor& t) { return block->forward(t); }, in,
                                   parameters);
                },
                x);
          return recompute([&, i](const at::Tensor& t) { return units[i].forward(t); }, x,
                           parameters);
        };
        train(net, g);
        net.expect_same(*want);
      });
}

TEST(shard_fully_sharded, a_forward_that_no_optimizer_answered_is_refused) {
  const auto said = what_ranks_throw(2, [](Group g) {
    ShardedTower net(1, g);
    torch::optim::SGD wrong(net.tower->parameters(), torch::optim::SGDOptions(0.1));
    for (int step = 0; step < 2; ++step) {
      wrong.zero_grad();
      loss_of(net.forward(part(rows_of_step(step), g))).backward();
      wrong.step();
    }
  });
  for (const auto& s : said)
    EXPECT_NE(s.find("UsageError: FullySharded: a forward after 1 backward, and no shard has"),
              std::string::npos)
        << s;
}

TEST(shard_fully_sharded, accumulated_backwards_and_no_sync_add_up) {
  Tower want(1);
  torch::optim::SGD serial(want.parameters(), torch::optim::SGDOptions(0.1));
  for (int k = 0; k < 3; ++k) loss_of(want.forward(rows_of_step(k))).backward();
  serial.step();
  for (bool sync : {false, true})
    run_threads(2, [&](Group g) {
      ShardedTower net(1, g);
      ShardedOptimizer<torch::optim::SGD> optimizer(net.sharded, torch::optim::SGDOptions(0.1));
      if (sync) net.sharded.accumulate(3);
      {
        std::optional<FullySharded::NoSync> guard;
        if (!sync) guard.emplace(net.sharded);
        for (int k = 0; k < 2; ++k) loss_of(net.forward(part(rows_of_step(k), g))).backward();
      }
      loss_of(net.forward(part(rows_of_step(2), g))).backward();
      expect(net.sharded.gradients().stats().rounds == (sync ? 3 : 1), "rounds");
      optimizer.step();
      net.expect_same(want);
    });
}

TEST(shard_fully_sharded, the_norm_is_that_of_the_whole_gradient) {
  Tower want(1);
  loss_of(want.forward(rows_of_step(0))).backward();
  const double norm = torch::nn::utils::clip_grad_norm_(want.parameters(), 1e9);
  run_threads(4, [&](Group g) {
    ShardedTower net(1, g);
    loss_of(net.forward(part(rows_of_step(0), g))).backward();
    const double got = net.sharded.clip_grad_norm_(1e9);
    expect(std::abs(got - norm) < 1e-12 * norm, "norm " + std::to_string(got));
  });
}

TEST(shard_fully_sharded, clipping_by_value_and_by_every_norm_is_torchs_on_one_process) {
  const double inf = std::numeric_limits<double>::infinity();
  for (double p : {1.0, 3.0, inf, 0.0}) {  // 0: by value
    Tower want(1);
    torch::optim::SGD serial(want.parameters(), torch::optim::SGDOptions(1));
    loss_of(want.forward(rows_of_step(0))).backward();
    double norm = 0;
    if (p == 0)
      torch::nn::utils::clip_grad_value_(want.parameters(), 1e-4);
    else
      norm = torch::nn::utils::clip_grad_norm_(want.parameters(), 0.01, p);
    serial.step();
    run_threads(4, [&](Group g) {
      ShardedTower net(1, g);
      ShardedOptimizer<torch::optim::SGD> optimizer(net.sharded, torch::optim::SGDOptions(1));
      loss_of(net.forward(part(rows_of_step(0), g))).backward();
      if (p == 0) {
        net.sharded.clip_grad_value_(1e-4);
      } else {
        const double got = net.sharded.clip_grad_norm_(0.01, p);
        expect(std::abs(got - norm) < 1e-10 * norm, "norm " + std::to_string(got));
      }
      optimizer.step();
      net.expect_same(want);
    });
  }
}

TEST(shard_fully_sharded, frozen_parameters_are_sharded_and_stay) {
  Tower want(1);
  for (auto& p : want.blocks[1]->parameters()) p.set_requires_grad(false);
  want.blocks[2]->up->bias.set_requires_grad(false);
  std::vector<at::Tensor> trained;
  for (auto& p : want.parameters())
    if (p.requires_grad()) trained.push_back(p);
  torch::optim::SGD serial(trained, torch::optim::SGDOptions(0.1));
  for (int step = 0; step < 2; ++step) {
    serial.zero_grad();
    loss_of(want.forward(rows_of_step(step))).backward();
    serial.step();
  }
  run_threads(2, [&](Group g) {
    auto tower = std::make_shared<Tower>(1);
    for (auto& p : tower->blocks[1]->parameters()) p.set_requires_grad(false);
    tower->blocks[2]->up->bias.set_requires_grad(false);
    FullySharded sharded(g);
    std::vector<FullyShardedModule<Block>> units;
    for (size_t i = 0; i < 4; ++i)
      units.push_back(fully_shard(tower->blocks[i], sharded, "block" + std::to_string(i)));
    sharded.root(*tower);
    tower->run_block = [&](size_t i, const at::Tensor& x) { return units[i].forward(x); };
    ShardedOptimizer<torch::optim::SGD> optimizer(sharded, torch::optim::SGDOptions(0.1));
    for (int step = 0; step < 2; ++step) {
      optimizer.zero_grad();
      loss_of(sharded.run([&](const at::Tensor& x) { return tower->forward(x); },
                          part(rows_of_step(step), g)))
          .backward();
      optimizer.step();
    }
    expect(tower->blocks[1]->up->weight.data_ptr() == nullptr, "frozen ones are dropped too");
    FullySharded::Gathered whole(sharded);
    expect_same_parameters(*tower, want, 1e-12);
  });
}

TEST(shard_fully_sharded, a_unit_that_one_rank_skips_is_named_and_nothing_hangs) {
  const auto said = what_ranks_throw(2, [](Group g) {
    ShardedTower net(1, g);
    auto plain = net.tower->run_block;
    net.tower->run_block = [&](size_t i, const at::Tensor& x) {
      return i == 2 && g.rank() == 1 ? x : plain(i, x);
    };
    train(net, g, 2);
  });
  for (const auto& s : said) EXPECT_NE(s.find("Mismatch"), std::string::npos) << s;
}

// Both ends of the tower share a matrix: y = tower(x W) Wᵀ.
struct Tied : torch::nn::Module {
  explicit Tied(uint64_t seed) {
    inner = register_module("inner", std::make_shared<Tower>(seed));
    w = inner->to->weight;
  }
  at::Tensor forward(const at::Tensor& x) {
    at::Tensor h = inner->to(x);
    for (size_t i = 0; i < 4; ++i)
      h = inner->run_block ? inner->run_block(i, h) : inner->blocks[i]->forward(h);
    return at::matmul(h, w);
  }
  std::shared_ptr<Tower> inner;
  at::Tensor w;
};

TEST(shard_fully_sharded, a_tied_weight_in_the_root_gets_both_gradients) {
  Tied want(1);
  std::vector<at::Tensor> used;
  for (const auto& item : want.named_parameters())
    if (item.key().find("from") == std::string::npos) used.push_back(item.value());
  torch::optim::SGD serial(used, torch::optim::SGDOptions(0.1));
  loss_of(want.forward(rows_of_step(0))).backward();
  serial.step();
  run_threads(2, [&](Group g) {
    Tied net(1);
    FullySharded sharded(g);
    std::vector<FullyShardedModule<Block>> units;
    for (size_t i = 0; i < 4; ++i)
      units.push_back(
          fully_shard(net.inner->blocks[i], sharded, "inner.block" + std::to_string(i)));
    sharded.root(net);
    net.inner->run_block = [&](size_t i, const at::Tensor& x) { return units[i].forward(x); };
    ShardedOptimizer<torch::optim::SGD> optimizer(sharded, torch::optim::SGDOptions(0.1));
    loss_of(
        sharded.run([&](const at::Tensor& x) { return net.forward(x); }, part(rows_of_step(0), g)))
        .backward();
    optimizer.step();
    FullySharded::Gathered whole(sharded);
    expect_same_parameters(net, want, 1e-12);
  });
}

TEST(shard_fully_sharded, a_tied_weight_in_two_units_is_refused_by_both_names) {
  const auto said = what_ranks_throw(2, [](Group g) {
    Tower tower(1);
    FullySharded sharded(g);
    sharded.unit("block0", *tower.blocks[0]);
    torch::nn::Module other;
    other.register_parameter("weight", tower.blocks[0]->up->weight);
    sharded.unit("head", other);
  });
  for (const auto& s : said)
    EXPECT_NE(s.find("'head.weight' of unit 'head' is 'block0.up.weight' of unit 'block0'"),
              std::string::npos)
        << s;
}

TEST(shard_fully_sharded, root_comes_last_and_always) {
  const auto said = what_ranks_throw(1, [](Group g) {
    Tower tower(1);
    FullySharded sharded(g);
    sharded.unit("block0", *tower.blocks[0]);
    sharded.parameters();
  });
  EXPECT_NE(said[0].find("call root(network) after the units"), std::string::npos) << said[0];
}

TEST(shard_fully_sharded, an_exception_in_a_block_drops_it_and_reset_goes_on) {
  auto want = serial_adamw(1);
  run_threads(2, [&](Group g) {
    ShardedTower net(1, g);
    auto plain = net.tower->run_block;
    bool throws = true;
    net.tower->run_block = [&](size_t i, const at::Tensor& x) {
      if (i == 1 && throws)
        return net.units[1].unit().run(
            [](const at::Tensor&) -> at::Tensor { throw std::runtime_error("bad batch"); }, x);
      return plain(i, x);
    };
    bool thrown = false;
    try {
      net.forward(part(rows_of_step(0), g));
    } catch (const std::exception&) {
      thrown = true;
    }
    expect(thrown, "it comes through");
    expect(net.tower->blocks[1]->up->weight.data_ptr() == nullptr, "dropped");
    throws = false;
    net.sharded.reset();
    train(net, g, 1);
    net.expect_same(*want);
  });
}

TEST(shard_fully_sharded, a_block_may_work_in_place_on_what_it_is_given) {
  run_threads(2, [&](Group g) {
    auto first = std::make_shared<Block>(), second = std::make_shared<Block>();
    torch::nn::Module net;
    net.register_module("first", first);
    net.register_module("second", second);
    net.to(at::kDouble);
    FullySharded sharded(g);
    auto a = fully_shard(first, sharded, "first");
    auto b = fully_shard(second, sharded, "second");
    sharded.root(net);
    const at::Tensor x = torch::randn({4, 40}, at::kDouble);
    at::Tensor y = a.forward(x);
    b.unit()
        .run([&](const at::Tensor& in) { return second->forward(in * 1).relu_(); }, y)
        .sum()
        .backward();
    expect(sharded.shards()[0].second.grad().defined(), "gradients came");
  });
}

TEST(shard_fully_sharded, parameters_may_be_of_several_dtypes) {
  struct Mixed : torch::nn::Module {
    Mixed() {
      a = register_parameter("a", torch::ones({3000}, at::kDouble));
      b = register_parameter("b", torch::full({3000}, 2.0, at::kFloat));
    }
    at::Tensor forward(const at::Tensor& x) { return x * a * b.to(at::kDouble); }
    at::Tensor a, b;
  };
  run_threads(2, [](Group g) {
    auto net = std::make_shared<Mixed>();
    FullySharded sharded(g);
    auto unit = fully_shard(net, sharded, "net");
    torch::nn::Module all;
    all.register_module("net", net);
    sharded.root(all);
    unit.forward(torch::full({3000}, 3.0, at::kDouble)).sum().backward();
    for (const auto& [name, t] : sharded.shards())
      expect(t.grad().eq(name == "net.a" ? 6 : 3).all().item<bool>(), name);
  });
}

TEST(shard_fully_sharded, sync_batch_norm_works_inside_a_unit) {
  auto make = [](const Group& g) {
    auto net = std::make_shared<Tower>(1);
    SyncBatchNorm norm(torch::nn::BatchNormOptions(40), g);
    norm->to(at::kDouble);
    return std::pair(net, norm);
  };
  std::vector<at::Tensor> want;
  run_threads(1, [&](Group g) {
    auto [net, norm] = make(g);
    net->run_block = [&, net = net.get(), norm = norm](size_t i, const at::Tensor& x) mutable {
      at::Tensor y = net->blocks[i]->forward(x);
      return i == 1 ? norm->forward(y) : y;
    };
    loss_of(net->forward(rows_of_step(0))).backward();
    for (const auto& p : net->parameters()) want.push_back(p.grad());
    for (const auto& p : norm->parameters()) want.push_back(p.grad());
  });
  run_threads(2, [&](Group g) {
    auto [net, norm] = make(g);
    net->blocks[1]->register_module("norm", norm.ptr());
    FullySharded sharded(g);
    std::vector<FullySharded::Unit*> units;
    for (size_t i = 0; i < 4; ++i)
      units.push_back(&sharded.unit("block" + std::to_string(i), *net->blocks[i]));
    sharded.root(*net);
    net->run_block = [&, net = net.get(), norm = norm](size_t i, const at::Tensor& x) mutable {
      return units[i]->run(
          [&](const at::Tensor& in) {
            at::Tensor y = net->blocks[i]->forward(in);
            return i == 1 ? norm->forward(y) : y;
          },
          x);
    };
    loss_of(
        sharded.run([&](const at::Tensor& x) { return net->forward(x); }, part(rows_of_step(0), g)))
        .backward();
    double square = 0;
    for (const auto& w : want) square += w.pow(2).sum().item<double>();
    const double got = sharded.clip_grad_norm_(1e9);
    expect(std::abs(got - std::sqrt(square)) < 1e-10 * got, "gradient norm");
  });
}

}  // namespace

}  // namespace fully_sharded_test
