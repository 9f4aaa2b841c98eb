// SPDX-License-Identifier: Apache-2.0
#include "tests/support/pretend_device/group.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <atomic>
#include <functional>
#include <string>
#include <vector>

#include "tests/shard/sharded_nets.h"
#include "tests/support/pretend_device/modules.h"
#include "tests/support/pretend_device/pretend_device.h"
#include "tests/support/pretend_device/seeds.h"
#include "trireme/trireme.h"

namespace trireme::pretend::group_test {
namespace {

using testing::expect;
using testing::kSteps;
using testing::Small;

using Train = std::function<void(Small&, Group, c10::Device)>;

std::vector<at::Tensor> weights_of(const Small& net) {
  std::vector<at::Tensor> weights;
  for (const at::Tensor& p : net->parameters()) weights.push_back(p.detach().cpu());
  return weights;
}

/// Under every seed, each rank's network after `train` on devices has the bits of the CPU's.
void same_as_on_the_cpu(int seeds, const Train& train) {
  std::vector<at::Tensor> expected;
  run_threads(2, [&](Group g) {
    Small net = testing::wide();
    train(net, g, at::kCPU);
    if (g.rank() == 0) expected = weights_of(net);
  });
  for_some_seeds(seeds, [&] {
    run_on_devices(2, [&](Group g, c10::Device where) {
      Small net = testing::wide();
      move_to(*net, where);
      train(net, g, where);
      const std::vector<at::Tensor> got = weights_of(net);
      for (size_t i = 0; i < got.size(); ++i)
        expect(got[i].equal(expected[i]), "parameter " + std::to_string(i) + " has other bits");
    });
  });
}

at::Tensor batch(int step, const Group& g, c10::Device where) {
  return testing::part(testing::rows_of_step(step), g).to(where);
}

void train_ddp(Small& net, Group g, c10::Device where, DdpOptions options) {
  DistributedDataParallel ddp(net, g, std::move(options));
  torch::optim::AdamW optimizer(net->parameters(), torch::optim::AdamWOptions(1e-2));
  for (int step = 0; step < kSteps; ++step) {
    optimizer.zero_grad();
    testing::mean_loss(net, batch(step, g, where)).backward();
    optimizer.step();
  }
}

}  // namespace

TEST(support_pretend_device_group, orders_the_stream_and_does_not_block_the_host) {
  for_some_seeds(5, [] {
    run_on_devices(3, [](Group g, c10::Device where) {
      at::Tensor x = at::full({1000}, g.rank() + 1, at::TensorOptions(at::kFloat).device(where));
      const uint64_t before = host_waits_of_this_thread();
      g.all_reduce(x, ReduceOp::sum).wait();
      const at::Tensor twice = x * 2;
      expect(host_waits_of_this_thread() == before, "the host waited");
      expect(twice.cpu().equal(at::full({1000}, 12.f)), "the sum is wrong");
    });
  });
}

TEST(support_pretend_device_group, shows_what_reads_a_result_before_its_wait) {
  int wrong = 0;
  for_seeds(10, [&] {
    std::atomic<bool> seen{false};
    run_on_devices(2, [&](Group g, c10::Device where) {
      at::Tensor x = at::ones({1000}, at::TensorOptions(at::kFloat).device(where));
      Work work = g.all_reduce(x, ReduceOp::sum);
      if (!(x * 2).cpu().equal(at::full({1000}, 4.f))) seen = true;
      work.wait();
    });
    wrong += seen;
  });
  EXPECT_GT(wrong, 0);
}

TEST(support_pretend_device_group, moves_tensors_of_the_cpu_too) {
  run_on_devices(2, [](Group g, c10::Device) {
    at::Tensor x = at::ones({3});
    g.all_reduce(x, ReduceOp::sum).wait();
    expect(x.equal(at::full({3}, 2.f)), "the sum is wrong");
    Group half = g.split(0, -g.rank());
    half.broadcast(x.fill_(g.rank()), 0).wait();
    expect(x.equal(at::ones({3})), "the other order of ranks");
  });
}

TEST(support_pretend_device_group, ddp_trains_to_the_cpus_bits) {
  for (const size_t bucket : {size_t{0}, size_t{256}})
    same_as_on_the_cpu(5, [&](Small& net, Group g, c10::Device where) {
      DdpOptions options;
      options.bucket_bytes = options.first_bucket_bytes = bucket;
      train_ddp(net, g, where, options);
    });
}

TEST(support_pretend_device_group, ddp_trains_with_its_options_and_hooks) {
  const std::vector<std::function<void(DdpOptions&)>> changes{
      [](DdpOptions& o) { o.check_finite = true; },
      [](DdpOptions& o) { o.find_unused_parameters = true; },
      [](DdpOptions& o) { o.static_graph = true; },
      [](DdpOptions& o) { o.buffers = BufferPolicy::mean; },
      [](DdpOptions& o) { o.hook = cast_hook(at::kFloat); },
      [](DdpOptions& o) { o.hook = scatter_gather_hook(); }};
  for (size_t i = 0; i < changes.size(); ++i) {
    SCOPED_TRACE(i);
    same_as_on_the_cpu(2, [&](Small& net, Group g, c10::Device where) {
      DdpOptions options;
      changes[i](options);
      train_ddp(net, g, where, options);
    });
  }
}

TEST(support_pretend_device_group, zero_1_and_2_train_to_the_cpus_bits) {
  for (const ZeroStage stage : {ZeroStage::optimizer, ZeroStage::gradients})
    same_as_on_the_cpu(5, [&](Small& net, Group g, c10::Device where) {
      ShardedDataParallel zero(net, g, {.stage = stage, .bucket_bytes = 512});
      ShardedOptimizer<torch::optim::AdamW> optimizer(zero.sharded(),
                                                      torch::optim::AdamWOptions(1e-2));
      for (int step = 0; step < kSteps; ++step) {
        optimizer.zero_grad();
        testing::mean_loss(net, batch(step, g, where)).backward();
        optimizer.step();
      }
    });
}

TEST(support_pretend_device_group, zero_3_trains_to_the_cpus_bits) {
  same_as_on_the_cpu(5, [](Small& net, Group g, c10::Device where) {
    FullySharded sharded(g);
    auto a = fully_shard(net->a, sharded, "a"), b = fully_shard(net->b, sharded, "b"),
         c = fully_shard(net->c, sharded, "c");
    sharded.root(*net);
    ShardedOptimizer<torch::optim::AdamW> optimizer(sharded, torch::optim::AdamWOptions(1e-2));
    for (int step = 0; step < kSteps; ++step) {
      optimizer.zero_grad();
      const at::Tensor y = sharded.run(
          [&](at::Tensor x) {
            return c.forward(torch::tanh(b.forward(torch::tanh(a.forward(x)))));
          },
          batch(step, g, where));
      y.pow(2).sum(1).mean().backward();
      optimizer.step();
    }
    Small whole = testing::wide();
    move_to(*whole, where);
    {
      const FullySharded::Gathered readable(sharded);
      const at::NoGradGuard no_grad;
      const auto from = net->parameters(), to = whole->parameters();
      for (size_t i = 0; i < to.size(); ++i) to[i].detach().copy_(from[i]);
    }
    net = whole;
  });
}

}  // namespace trireme::pretend::group_test
