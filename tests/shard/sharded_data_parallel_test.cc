// SPDX-License-Identifier: Apache-2.0
#include "trireme/shard/sharded_data_parallel.h"

#include <gtest/gtest.h>

#include <limits>

#include "tests/shard/sharded_nets.h"
#include "trireme/optim/optimizer.h"
#include "trireme/shard/gradient_scatter.h"
#include "trireme/shard/sharded_optimizer.h"

namespace sharded_data_parallel_test {

using namespace trireme;
using namespace trireme::testing;

namespace {

template <class Optimizer>
void train_serial(Small& net, Optimizer& optimizer) {
  for (int step = 0; step < kSteps; ++step) {
    optimizer.zero_grad();
    mean_loss(net, rows_of_step(step)).backward();
    optimizer.step();
  }
}

template <class TorchOptimizer, class Options>
void torch_optimizer_on_shards(const Options& options) {
  Small want = wide();
  TorchOptimizer serial(want->parameters(), options);
  train_serial(want, serial);
  for (ZeroStage stage : {ZeroStage::optimizer, ZeroStage::gradients})
    for (int n : {1, 2, 4})
      run_threads(n, [&](Group g) {
        Small net = wide(static_cast<uint64_t>(g.rank()) + 1);  // rank 0's counts
        ShardedDataParallel zero(net, g, {.stage = stage, .bucket_bytes = 1 << 14});
        ShardedOptimizer<TorchOptimizer> optimizer(zero.sharded(), options);
        for (int step = 0; step < kSteps; ++step) {
          optimizer.zero_grad();
          mean_loss(net, part(rows_of_step(step), g)).backward();
          optimizer.step();
        }
        expect_same_parameters(*net, *want, 1e-12);
      });
}

TEST(shard_sharded_data_parallel, torch_sgd_on_shards_is_the_serial_run) {
  torch_optimizer_on_shards<torch::optim::SGD>(torch::optim::SGDOptions(0.1).momentum(0.9));
}
TEST(shard_sharded_data_parallel, torch_adamw_on_shards_is_the_serial_run) {
  torch_optimizer_on_shards<torch::optim::AdamW>(torch::optim::AdamWOptions(0.01));
}

using Make =
    std::function<std::unique_ptr<Optimizer>(NamedTensors, std::shared_ptr<const NormParts>)>;

NamedTensors named(const torch::nn::Module& m) {
  NamedTensors list;
  for (const auto& item : m.named_parameters()) list.emplace_back(item.key(), item.value());
  return list;
}

void our_optimizer_on_shards(const Make& make) {
  Small want = wide();
  auto serial = make(named(*want), nullptr);
  for (int step = 0; step < kSteps; ++step) {
    serial->zero_grad();
    mean_loss(want, rows_of_step(step)).backward();
    serial->step(0.01);
  }
  for (ZeroStage stage : {ZeroStage::optimizer, ZeroStage::gradients})
    for (int n : {2, 3, 4})
      run_threads(n, [&](Group g) {
        Small net = wide();
        ShardedDataParallel zero(net, g, {.stage = stage});
        auto optimizer = make(zero.sharded().shards(), zero.sharded().norm_parts());
        for (int step = 0; step < kSteps; ++step) {
          zero.sharded().zero_grad();
          // On 3 ranks the rows do not divide: everybody takes all of them.
          const at::Tensor rows = rows_of_step(step);
          mean_loss(net, kRows % n ? rows : part(rows, g)).backward();
          optimizer->step(0.01);
          zero.sharded().publish();
        }
        expect_same_parameters(*net, *want, 1e-11);
      });
}

TEST(shard_sharded_data_parallel, lamb_measures_whole_parameters) {
  our_optimizer_on_shards([](NamedTensors p, std::shared_ptr<const NormParts> parts) {
    return make_lamb(std::move(p), {.weight_decay = 0.1}, {}, std::move(parts));
  });
}
TEST(shard_sharded_data_parallel, lars_measures_whole_parameters) {
  our_optimizer_on_shards([](NamedTensors p, std::shared_ptr<const NormParts> parts) {
    return make_lars(std::move(p), {.weight_decay = 0.1, .trust_coefficient = 0.1}, {},
                     std::move(parts));
  });
}
TEST(shard_sharded_data_parallel, option_groups_match_the_names_of_whole_parameters) {
  our_optimizer_on_shards([](NamedTensors p, std::shared_ptr<const NormParts>) {
    return make_adamw(std::move(p), {.weight_decay = 0.5}, {{"*.bias", 0.0}, {"b.*", 0.1, 2}});
  });
}

TEST(shard_sharded_data_parallel, clipping_uses_the_norm_over_all_ranks) {
  Small want = wide();
  mean_loss(want, rows_of_step(0)).backward();
  const double norm = torch::nn::utils::clip_grad_norm_(want->parameters(), 0.01);
  torch::optim::SGD serial(want->parameters(), torch::optim::SGDOptions(1));
  serial.step();
  run_threads(4, [&](Group g) {
    Small net = wide();
    ShardedDataParallel zero(net, g);
    ShardedOptimizer<torch::optim::SGD> optimizer(zero.sharded(), torch::optim::SGDOptions(1));
    mean_loss(net, part(rows_of_step(0), g)).backward();
    const double got = zero.sharded().clip_grad_norm_(0.01);
    expect(std::abs(got - norm) < 1e-12 * norm, "norm " + std::to_string(got));
    optimizer.step();
    expect_same_parameters(*net, *want, 1e-12);
  });
}

TEST(shard_sharded_data_parallel, clipping_by_value_and_by_every_norm_is_torchs_on_one_process) {
  const double inf = std::numeric_limits<double>::infinity();
  for (ZeroStage stage : {ZeroStage::optimizer, ZeroStage::gradients})
    for (double p : {1.0, 2.0, 3.0, inf, 0.0}) {  // 0: by value
      Small want = wide();
      mean_loss(want, rows_of_step(0)).backward();
      double norm = 0;
      if (p == 0)
        torch::nn::utils::clip_grad_value_(want->parameters(), 1e-4);
      else
        norm = torch::nn::utils::clip_grad_norm_(want->parameters(), 0.01, p);
      torch::optim::SGD serial(want->parameters(), torch::optim::SGDOptions(1));
      serial.step();
      run_threads(4, [&](Group g) {
        Small net = wide();
        ShardedDataParallel zero(net, g, {.stage = stage});
        ShardedOptimizer<torch::optim::SGD> optimizer(zero.sharded(), torch::optim::SGDOptions(1));
        mean_loss(net, part(rows_of_step(0), g)).backward();
        if (p == 0) {
          zero.sharded().clip_grad_value_(1e-4);
        } else {
          const double got = zero.sharded().clip_grad_norm_(0.01, p);
          expect(std::abs(got - norm) < 1e-10 * norm, "norm " + std::to_string(got));
        }
        optimizer.step();
        expect_same_parameters(*net, *want, 1e-10);
      });
    }
}

TEST(shard_sharded_data_parallel, no_sync_and_repeated_backwards_add_up) {
  Small want = wide();
  torch::optim::SGD serial(want->parameters(), torch::optim::SGDOptions(0.1));
  for (int k = 0; k < 3; ++k) mean_loss(want, rows_of_step(k)).backward();
  serial.step();
  for (ZeroStage stage : {ZeroStage::optimizer, ZeroStage::gradients})
    for (bool sync : {false, true})
      run_threads(2, [&](Group g) {
        Small net = wide();
        ShardedDataParallel zero(net, g, {.stage = stage});
        ShardedOptimizer<torch::optim::SGD> optimizer(zero.sharded(),
                                                      torch::optim::SGDOptions(0.1));
        {
          std::optional<ShardedDataParallel::NoSync> guard;
          if (!sync) guard.emplace(zero);
          mean_loss(net, part(rows_of_step(0), g)).backward();
          mean_loss(net, part(rows_of_step(1), g)).backward();
        }
        mean_loss(net, part(rows_of_step(2), g)).backward();
        expect(zero.gradients().stats().rounds == (sync ? 3 : 1), "rounds");
        optimizer.step();
        expect_same_parameters(*net, *want, 1e-12);
      });
}

TEST(shard_sharded_data_parallel, after_backward_only_shards_of_gradients_exist) {
  run_threads(2, [&](Group g) {
    Small net = wide();
    ShardedDataParallel zero(net, g, {.stage = ZeroStage::gradients, .bucket_bytes = 1 << 12});
    mean_loss(net, part(rows_of_step(0), g)).backward();
    for (const auto& p : net->parameters()) expect(!p.grad().defined(), "a whole gradient");
    int64_t elements = 0;
    for (const auto& [name, t] : zero.sharded().shards()) elements += t.grad().numel();
    int64_t all = 0;
    for (const auto& p : net->parameters()) all += p.numel();
    expect(elements < all, "shards of gradients");
    at::Tensor sum = torch::tensor({elements});
    g.all_reduce(sum).wait();
    expect(sum.item<int64_t>() == all, "together they are the whole gradient");
  });
}

TEST(shard_sharded_data_parallel, an_unused_parameter_is_named_or_keeps_what_it_had) {
  const auto said = what_ranks_throw(2, [](Group g) {
    Small net = wide();
    ShardedDataParallel zero(net, g);
    net->forward(input(4), g.rank() == 0).sum().backward();
  });
  for (const auto& s : said) EXPECT_NE(s.find("'b.weight' (from 1 of 2)"), std::string::npos) << s;
  run_threads(2, [&](Group g) {
    Small net = wide();
    const at::Tensor before = net->b->weight.detach().clone();
    ShardedDataParallel zero(net, g, {.find_unused_parameters = true});
    ShardedOptimizer<torch::optim::AdamW> optimizer(zero.sharded(),
                                                    torch::optim::AdamWOptions(0.1));
    net->forward(input(4), false).sum().backward();
    optimizer.step();
    expect(torch::equal(net->b->weight, before), "AdamW moved a parameter without a gradient");
    expect(!torch::equal(net->a->weight, wide()->a->weight), "and none with one");
  });
}

TEST(shard_sharded_data_parallel, shards_of_hosts_with_replicas_are_the_serial_run) {
  Small want = wide();
  torch::optim::SGD serial(want->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
  train_serial(want, serial);
  run_threads(4, [&](Group g) {
    Small net = wide();
    Group shards = g.split(g.rank() / 2), replicas = g.split(g.rank() % 2);
    ShardedDataParallel zero(net, {shards, replicas, g}, {.bucket_bytes = 1 << 14});
    ShardedOptimizer<torch::optim::SGD> optimizer(zero.sharded(),
                                                  torch::optim::SGDOptions(0.1).momentum(0.9));
    for (int step = 0; step < kSteps; ++step) {
      optimizer.zero_grad();
      mean_loss(net, part(rows_of_step(step), g)).backward();
      optimizer.step();
    }
    expect_same_parameters(*net, *want, 1e-12);
  });
}

TEST(shard_sharded_data_parallel, groups_that_do_not_make_the_world_are_refused) {
  const auto said = what_ranks_throw(4, [](Group g) {
    Small net = wide();
    Group shards = g.split(g.rank() / 2);
    ShardedDataParallel zero(net, {shards, shards.split(shards.rank()), g});
  });
  for (const auto& s : said)
    EXPECT_EQ(s, "UsageError: sharding: 2 shards × 1 replicas are not the 4 ranks of the world");
}

TEST(shard_sharded_data_parallel, shared_weights_are_one_memory_and_train_as_the_serial_run) {
  Small want = wide();
  torch::optim::SGD serial(want->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
  train_serial(want, serial);
  for (ZeroStage stage : {ZeroStage::optimizer, ZeroStage::gradients})
    run_threads(4, [&](Group g) {
      Small net = wide();
      ShardedDataParallel zero(net, g,
                               {.stage = stage, .bucket_bytes = 1 << 13, .share_weights = true});
      at::Tensor address = torch::tensor({reinterpret_cast<int64_t>(net->b->weight.data_ptr())});
      at::Tensor all = torch::empty({4}, at::kLong);
      g.all_gather_into_tensor(all, address).wait();
      expect(all.eq(address).all().item<bool>(), "threads see it at one address");
      ShardedOptimizer<torch::optim::SGD> optimizer(zero.sharded(),
                                                    torch::optim::SGDOptions(0.1).momentum(0.9));
      for (int step = 0; step < kSteps; ++step) {
        optimizer.zero_grad();
        mean_loss(net, part(rows_of_step(step), g)).backward();
        optimizer.step();
      }
      expect_same_parameters(*net, *want, 1e-12);
      g.barrier();
    });
}

TEST(shard_sharded_data_parallel, the_module_outlives_its_sharding) {
  run_threads(2, [&](Group g) {
    Small net = wide();
    const at::Tensor before = net->forward(input(3)).detach();
    { ShardedDataParallel zero(net, g); }
    expect(torch::equal(net->forward(input(3)), before), "weights went away");
  });
}

}  // namespace

}  // namespace sharded_data_parallel_test
