// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <functional>
#include <future>
#include <mutex>
#include <string>
#include <vector>

#include "tests/shard/sharded_nets.h"
#include "tests/support/pretend_device/group.h"
#include "tests/support/pretend_device/modules.h"
#include "tests/support/pretend_device/pretend_device.h"
#include "tests/support/pretend_device/seeds.h"
#include "tests/support/ranks.h"
#include "trireme/shard/gradient_scatter.h"
#include "trireme/tensor/device.h"
#include "trireme/trireme.h"

// Data parallelism and sharding with a device for each rank, on groups of the CPU (local, gloo) and
// on one of devices: the CPU's bits, and hooks that wait for nothing.
namespace trireme::device_groups_train_test {
namespace {

using testing::expect;
using testing::kSteps;
using testing::outcome_of;
using testing::Small;

using Train = std::function<void(Small&, Group, at::Device)>;

const std::string kDevices = "devices";  // moves devices' tensors by itself, like NCCL

void run(int n, const std::string& backend, const std::function<void(Group)>& fn) {
  run_threads(n, fn, ThreadOptions{std::chrono::seconds(60), backend});
}
void run_with_devices(int n, const std::string& backend,
                      const std::function<void(Group, at::Device)>& fn) {
  if (backend == kDevices) return pretend::run_on_devices(n, fn);
  run(n, backend, [&](Group g) { fn(g, pretend::device(g.rank())); });
}

std::vector<at::Tensor> weights_of(const Small& net) {
  std::vector<at::Tensor> weights;
  for (const at::Tensor& p : net->parameters()) weights.push_back(p.detach().cpu().clone());
  return weights;
}

const std::vector<std::string> kAll{"local", "gloo", kDevices};

/// Each rank's network after `train` on devices has the bits that the CPU's has, which trains on
/// the same backend (for a group of devices: on the local one).
void same_as_on_the_cpu(const Train& train, int ranks = 2,
                        const std::vector<std::string>& backends = {"local", "gloo"}) {
  for (const std::string& backend : backends) {
    SCOPED_TRACE(backend);
    std::vector<at::Tensor> expected;
    run(ranks, backend == kDevices ? "local" : backend, [&](Group g) {
      Small net = testing::wide();
      train(net, g, at::kCPU);
      if (g.rank() == 0) expected = weights_of(net);
    });
    pretend::for_some_seeds(1, [&] {
      run_with_devices(ranks, backend, [&](Group g, at::Device device) {
        const CurrentDevice current(device);
        Small net = testing::wide();
        pretend::move_to(*net, device);
        train(net, g, device);
        const std::vector<at::Tensor> got = weights_of(net);
        for (size_t i = 0; i < got.size(); ++i)
          expect(got[i].equal(expected[i]), "parameter " + std::to_string(i) + " has other bits");
      });
    });
  }
}

at::Tensor batch(int step, const Group& g, at::Device where) {
  return testing::part(testing::rows_of_step(step), g).to(where);
}

/// backward(), in which nothing waits on the host from the loss on to the graph's beginning, behind
/// the hooks of all parameters.
void backward_without_waits(const std::function<at::Tensor(const at::Tensor&)>& loss_of,
                            const at::Tensor& x) {
  if (x.is_cpu()) return loss_of(x).backward();
  uint64_t begin = 0, end = 0;
  const at::Tensor leaf = x.detach().requires_grad_();
  const at::Tensor entered = leaf * 1;
  const at::Tensor loss = loss_of(entered);
  loss.register_hook([&](const at::Tensor&) { begin = pretend::host_waits_of_this_thread(); });
  leaf.register_hook([&](const at::Tensor&) { end = pretend::host_waits_of_this_thread(); });
  loss.backward();
  expect(begin == end, std::to_string(end - begin) + " waits on a stream inside of backward");
}

at::Tensor mean_square(const at::Tensor& y) { return y.pow(2).sum(1).mean(); }

void train_ddp(Small& net, Group g, at::Device where, DdpOptions options) {
  DistributedDataParallel ddp(net, g, std::move(options));
  torch::optim::AdamW optimizer(net->parameters(), torch::optim::AdamWOptions(1e-2));
  for (int step = 0; step < kSteps; ++step) {
    optimizer.zero_grad();
    backward_without_waits([&](const at::Tensor& x) { return mean_square(net->forward(x)); },
                           batch(step, g, where));
    optimizer.step();
  }
}

DdpOptions small_buckets() {
  DdpOptions o;
  o.bucket_bytes = o.first_bucket_bytes = 256;
  return o;
}

}  // namespace

TEST(device_groups_train, ddp_ends_with_the_cpus_bits_and_its_hooks_wait_for_nothing) {
  same_as_on_the_cpu(
      [](Small& net, Group g, at::Device where) { train_ddp(net, g, where, small_buckets()); }, 2,
      kAll);
}

TEST(device_groups_train, ddp_with_its_options_ends_with_the_cpus_bits) {
  const std::vector<std::function<void(DdpOptions&)>> changes{
      [](DdpOptions& o) { o.check_finite = true; }, [](DdpOptions& o) { o.static_graph = true; },
      [](DdpOptions& o) { o.buffers = BufferPolicy::mean; },
      [](DdpOptions& o) { o.hook = cast_hook(at::kFloat); },
      [](DdpOptions& o) { o.hook = scatter_gather_hook(); }};
  for (size_t i = 0; i < changes.size(); ++i) {
    SCOPED_TRACE(i);
    same_as_on_the_cpu(
        [&](Small& net, Group g, at::Device where) {
          DdpOptions options = small_buckets();
          changes[i](options);
          train_ddp(net, g, where, options);
        },
        2, {i % 2 ? "gloo" : "local"});
  }
}

TEST(device_groups_train, parameters_that_a_rank_does_not_use_and_steps_of_several_backwards) {
  same_as_on_the_cpu([](Small& net, Group g, at::Device where) {
    DdpOptions options = small_buckets();
    options.find_unused_parameters = true;
    DistributedDataParallel ddp(net, g, options);
    torch::optim::AdamW optimizer(net->parameters(), torch::optim::AdamWOptions(1e-2));
    for (int step = 0; step < kSteps; ++step) {
      optimizer.zero_grad();
      const auto loss = [&](const at::Tensor& x) {
        // Rank 1 leaves out the last layer in every other step.
        const at::Tensor y = torch::tanh(net->b->forward(torch::tanh(net->a->forward(x))));
        return mean_square(step % 2 && g.rank() == 1 ? y : net->c->forward(y));
      };
      {
        auto pause = ddp.no_sync();
        backward_without_waits(loss, batch(step + 7, g, where));
      }
      backward_without_waits(loss, batch(step, g, where));
      optimizer.step();
    }
  });
}

TEST(device_groups_train, leaves_give_the_same_bits_for_one_rank_and_for_two) {
  const auto train = [](Small& net, Group g, at::Device where) {
    DdpOptions options = small_buckets();
    options.leaves = 4 / g.size();
    NamedTensors parameters;  // without the buffer
    for (const auto& item : net->named_parameters())
      parameters.emplace_back(item.key(), item.value());
    DistributedDataParallel ddp(parameters, {}, g, options);
    torch::optim::SGD optimizer(net->parameters(), torch::optim::SGDOptions(1e-2));
    for (int step = 0; step < 3; ++step) {
      ddp.zero_grad();
      for (int leaf = 0; leaf < options.leaves; ++leaf) {
        const at::Tensor rows = testing::rows_of_step(step).chunk(
            4)[static_cast<size_t>(g.rank() * options.leaves + leaf)];
        net->forward(rows.to(where)).pow(2).sum().backward();
      }
      optimizer.step();
    }
  };
  for (int ranks : {1, 2}) same_as_on_the_cpu(train, ranks, {"local"});
}

TEST(device_groups_train, ranks_with_fewer_batches_join) {
  same_as_on_the_cpu([](Small& net, Group g, at::Device where) {
    DistributedDataParallel ddp(net, g, small_buckets());
    torch::optim::AdamW optimizer(net->parameters(), torch::optim::AdamWOptions(1e-2));
    join({&ddp}, [&] {
      for (int step = 0; step < 2 + g.rank(); ++step) {
        optimizer.zero_grad();
        testing::mean_loss(net, batch(step, g, where)).backward();
        optimizer.step();
      }
    });
  });
}

TEST(device_groups_train, a_gradient_that_is_not_finite_is_named_with_its_rank) {
  for (const bool on_device : {false, true}) {
    std::vector<std::string> said(2);
    run(2, "local", [&](Group g) {
      const at::Device where = on_device ? pretend::device(g.rank()) : at::Device(at::kCPU);
      const CurrentDevice current(where);
      Small net = testing::wide();
      if (on_device) pretend::move_to(*net, where);
      DdpOptions options = small_buckets();
      options.check_finite = true;
      DistributedDataParallel ddp(net, g, options);
      said[static_cast<size_t>(g.rank())] = outcome_of([&] {
        at::Tensor x = batch(0, g, where);
        if (g.rank() == 1) x = x / 0.0;
        testing::mean_loss(net, x).backward();
      });
    });
    for (const std::string& text : said) {
      EXPECT_NE(text.find("NumericError: the gradient of '"), std::string::npos) << text;
      EXPECT_NE(text.find("on rank 1 is not finite in round 1"), std::string::npos) << text;
    }
  }
}

TEST(device_groups_train, parameters_that_are_exchanged_are_followed_or_named) {
  same_as_on_the_cpu([](Small& net, Group g, at::Device where) {
    DistributedDataParallel ddp(net, g, small_buckets());
    torch::optim::SGD optimizer(net->parameters(), torch::optim::SGDOptions(1e-2));
    for (int step = 0; step < kSteps; ++step) {
      optimizer.zero_grad();
      if (step == 2) net->b->weight.set_data(net->b->weight.detach() * 0.5);
      backward_without_waits([&](const at::Tensor& x) { return mean_square(net->forward(x)); },
                             batch(step, g, where));
      optimizer.step();
    }
  });
  std::vector<std::string> said(2);
  run(2, "local", [&](Group g) {
    const at::Device device = pretend::device(g.rank());
    const CurrentDevice current(device);
    Small net = testing::wide();
    pretend::move_to(*net, device);
    DistributedDataParallel ddp(net, g);
    testing::mean_loss(net, batch(0, g, device)).backward();
    net->b->weight.set_data(net->b->weight.detach() * (g.rank() + 2));
    said[static_cast<size_t>(g.rank())] =
        outcome_of([&] { testing::mean_loss(net, batch(1, g, device)).backward(); });
  });
  for (const std::string& text : said)
    EXPECT_NE(text.find("Mismatch: parameter 'b.weight' was exchanged"), std::string::npos) << text;
}

TEST(device_groups_train, zero_1_and_2_end_with_the_cpus_bits_and_their_hooks_wait_for_nothing) {
  for (const ZeroStage stage : {ZeroStage::optimizer, ZeroStage::gradients})
    same_as_on_the_cpu(
        [&](Small& net, Group g, at::Device where) {
          ShardedDataParallel zero(net, g, {.stage = stage, .bucket_bytes = 512});
          ShardedOptimizer<torch::optim::AdamW> optimizer(zero.sharded(),
                                                          torch::optim::AdamWOptions(1e-2));
          for (int step = 0; step < kSteps; ++step) {
            optimizer.zero_grad();
            {
              auto pause = zero.no_sync();
              testing::mean_loss(net, batch(step + 7, g, where)).backward();
            }
            backward_without_waits(
                [&](const at::Tensor& x) { return mean_square(net->forward(x)); },
                batch(step, g, where));
            zero.sharded().clip_grad_norm_(0.5);
            optimizer.step();
          }
        },
        2, kAll);
}

namespace {

using Loss = std::function<at::Tensor(const at::Tensor&)>;
using StepOf = std::function<void(Small&, Group, const std::function<void(const Loss&)>& backward)>;

/// Rank 0's backward comes to the beginning of its graph while rank 1 waits to begin its own.
void expect_no_wait_for_a_peer(const StepOf& step,
                               const std::vector<std::string>& backends = kAll) {
  for (const std::string& backend : backends) {
    SCOPED_TRACE(backend);
    std::promise<void> came;
    bool alone = false;
    run_with_devices(2, backend, [&](Group g, at::Device device) {
      const CurrentDevice current(device);
      Small net = testing::wide();
      pretend::move_to(*net, device);
      step(net, g, [&](const Loss& loss_of) {
        const at::Tensor leaf = batch(0, g, device).requires_grad_();
        const at::Tensor loss = loss_of(leaf * 1);
        if (g.rank() == 0)
          leaf.register_hook([&](const at::Tensor&) { came.set_value(); });
        else
          alone = came.get_future().wait_for(std::chrono::seconds(2)) == std::future_status::ready;
        loss.backward();
      });
    });
    EXPECT_TRUE(alone) << "a hook waited for rank 1";
  }
}

}  // namespace

TEST(device_groups_train, hooks_of_ddp_do_not_wait_for_a_peer) {
  expect_no_wait_for_a_peer([](Small& net, Group g, const auto& backward) {
    DistributedDataParallel ddp(net, g, small_buckets());
    backward([&](const at::Tensor& x) { return mean_square(net->forward(x)); });
  });
}

// ZeRO-3 waits where it gathers a unit to compute with it, except over a group of devices. Beyond
// two buckets under way ZeRO-2 puts the stream behind the oldest over a group of devices, and an
// operator of the pretend device, unlike a GPU's, waits for its stream; over the others it takes
// memory for a third.
TEST(device_groups_train, hooks_of_zero_1_and_2_do_not_wait_for_a_peer) {
  struct Case {
    ZeroStage stage;
    size_t bucket_bytes;
    int buckets;
  };
  for (const Case& c : {Case{ZeroStage::optimizer, 512, 5}, Case{ZeroStage::gradients, 32 << 10, 2},
                        Case{ZeroStage::gradients, 512, 5}}) {
    std::vector<std::string> backends = kAll;
    if (c.stage == ZeroStage::gradients && c.buckets > 2) std::erase(backends, kDevices);
    expect_no_wait_for_a_peer(
        [&](Small& net, Group g, const auto& backward) {
          ShardedDataParallel zero(net, g, {.stage = c.stage, .bucket_bytes = c.bucket_bytes});
          backward([&](const at::Tensor& x) { return mean_square(net->forward(x)); });
          expect(zero.gradients().stats().launches == c.buckets,
                 std::to_string(zero.gradients().stats().launches) + " buckets");
        },
        backends);
  }
}

namespace {

void train_zero_3(Small& net, ShardGroups groups, const Group& g, at::Device where,
                  bool recomputed) {
  FullySharded sharded(std::move(groups));
  auto a = fully_shard(net->a, sharded, "a"), b = fully_shard(net->b, sharded, "b"),
       c = fully_shard(net->c, sharded, "c");
  sharded.root(*net);
  ShardedOptimizer<torch::optim::AdamW> optimizer(sharded, torch::optim::AdamWOptions(1e-2));
  for (int step = 0; step < kSteps; ++step) {
    optimizer.zero_grad();
    const auto loss = [&](const at::Tensor& x) {
      return mean_square(sharded.run(
          [&](at::Tensor h) {
            h = torch::tanh(a.forward(h));
            h = recomputed ? recompute([&](const at::Tensor& t) { return b.forward(t); }, h,
                                       net->b->parameters())
                           : b.forward(h);
            return c.forward(torch::tanh(h));
          },
          x));
    };
    backward_without_waits(loss, batch(step, g, where));
    optimizer.step();
  }
  Small whole = testing::wide();
  if (!where.is_cpu()) pretend::move_to(*whole, where);
  {
    const FullySharded::Gathered readable(sharded);
    const at::NoGradGuard no_grad;
    const auto from = net->parameters(), to = whole->parameters();
    for (size_t i = 0; i < to.size(); ++i) to[i].detach().copy_(from[i]);
  }
  net = whole;
}

}  // namespace

TEST(device_groups_train, zero_3_ends_with_the_cpus_bits_and_its_hooks_wait_for_no_stream) {
  same_as_on_the_cpu(
      [](Small& net, Group g, at::Device where) { train_zero_3(net, {g}, g, where, false); }, 2,
      kAll);
}

TEST(device_groups_train, zero_3_with_recomputed_units_ends_with_the_cpus_bits) {
  same_as_on_the_cpu(
      [](Small& net, Group g, at::Device where) { train_zero_3(net, {g}, g, where, true); }, 2,
      {"local", kDevices});
}

TEST(device_groups_train, shards_with_replicas_end_with_the_cpus_bits) {
  same_as_on_the_cpu(
      [](Small& net, Group g, at::Device where) {
        Group shards = g.split(g.rank() / 2), replicas = g.split(g.rank() % 2);
        train_zero_3(net, {shards, replicas, g}, g, where, false);
      },
      4, {"local"});
}

TEST(device_groups_train, recomputed_dropout_ends_with_the_cpus_bits) {
  same_as_on_the_cpu(
      [](Small& net, Group g, at::Device where) {
        DistributedDataParallel ddp(net, g, small_buckets());
        torch::optim::SGD optimizer(net->parameters(), torch::optim::SGDOptions(1e-2));
        for (int step = 0; step < kSteps; ++step) {
          optimizer.zero_grad();
          const at::Tensor h = recompute(
              [&](const at::Tensor& x) { return torch::tanh(net->b->forward(net->a->forward(x))); },
              batch(step, g, where).requires_grad_(),
              {net->a->parameters()[0], net->a->parameters()[1], net->b->parameters()[0],
               net->b->parameters()[1]});
          mean_square(net->c->forward(h)).backward();
          optimizer.step();
        }
      },
      2, {"local"});
}

TEST(device_groups_train, a_host_optimizer_steps_in_pinned_memory_to_the_cpus_bits) {
  const auto train = [](Group g, at::Device where) {
    torch::manual_seed(5);
    const at::Tensor w = at::linspace(-1, 1, 300, at::kFloat).to(where).requires_grad_();
    const size_t pinned = pretend::pinned_bytes();
    auto optimizer =
        host_optimizer({{"w", w}}, [](NamedTensors p) { return make_adamw(std::move(p)); });
    if (!where.is_cpu()) expect(pretend::pinned_bytes() > pinned, "the masters are not pinned");
    const uint64_t staged = pretend::counters().staged_copies;
    for (int step = 0; step < kSteps; ++step) {
      w.mutable_grad() = (w.detach() * 0.1 + step + g.rank());
      g.all_reduce(w.grad()).wait();
      optimizer->step(1e-2, 0.5);
      optimizer->zero_grad(true);
    }
    expect(pretend::counters().staged_copies == staged, "copies of memory that is not pinned");
    return w.detach().cpu();
  };
  at::Tensor expected;
  run(2, "local", [&](Group g) {
    const at::Tensor w = train(g, at::kCPU);
    if (g.rank() == 0) expected = w;
  });
  pretend::for_some_seeds(1, [&] {
    run(2, "local", [&](Group g) {
      const CurrentDevice current(pretend::device(g.rank()));
      expect(train(g, pretend::device(g.rank())).equal(expected), "other bits");
    });
  });
}

TEST(device_groups_train, batch_norm_over_ranks_has_the_cpus_bits) {
  const auto train = [](Group g, at::Device where) {
    SyncBatchNorm norm(torch::nn::BatchNormOptions(6), g.split(0));
    norm->to(at::kDouble);
    if (!where.is_cpu()) pretend::move_to(*norm, where);
    std::vector<at::Tensor> results;
    for (int step = 0; step < 3; ++step) {
      const at::Tensor x =
          (at::arange(60, at::kDouble).view({10, 6}) * 0.37 + step + g.rank()).sin().to(where);
      const at::Tensor leaf = x.detach().requires_grad_();
      norm->forward(leaf).pow(3).sum().backward();
      results.push_back(leaf.grad().cpu());
    }
    results.push_back(norm->weight.grad().cpu());
    for (const at::Tensor& b : norm->buffers()) results.push_back(b.cpu().clone());
    return results;
  };
  for (const char* backend : {"local", "gloo"}) {
    std::vector<std::vector<at::Tensor>> expected(2);
    run(2, backend, [&](Group g) { expected[static_cast<size_t>(g.rank())] = train(g, at::kCPU); });
    pretend::for_some_seeds(1, [&] {
      run(2, backend, [&](Group g) {
        const CurrentDevice current(pretend::device(g.rank()));
        const auto got = train(g, pretend::device(g.rank()));
        for (size_t i = 0; i < got.size(); ++i)
          expect(got[i].equal(expected[static_cast<size_t>(g.rank())][i]),
                 "result " + std::to_string(i) + " has other bits");
      });
    });
  }
}

}  // namespace trireme::device_groups_train_test
