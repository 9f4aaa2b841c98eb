// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "tests/gpu/stand_in.h"
#include "tests/grad/codec_rounds.h"
#include "tests/shard/sharded_nets.h"
#include "tests/support/refusals.h"
#include "trireme/trireme.h"

namespace gradients_test {

using namespace trireme;
using namespace trireme::testing;

// Training on GPUs, over a group that moves nothing but their tensors, ends where training on the
// CPU does.
namespace {

constexpr double kNear = 1e-9;  // of float64: a GPU adds in another order

using Train = std::function<void(Small&, Group, at::Device)>;

/// Each rank's network after `train` on GPUs is the one after it on the CPU.
void same_as_on_the_cpu(const Train& train) {
  run_on_gpus(2, [&](Group g, at::Device device) {
    Small there = wide();
    there->to(device);
    train(there, g, device);
    std::vector<at::Tensor> got;
    for (const auto& p : there->parameters()) got.push_back(p.detach().cpu());
    const int rank = g.rank();
    run_threads(g.size(), [&](Group plain) {
      Small here = wide();
      train(here, plain, at::kCPU);
      if (plain.rank() != rank) return;
      const auto want = here->parameters();
      for (size_t i = 0; i < want.size(); ++i)
        expect((got[i] - want[i].detach()).abs().max().item<double>() <= kNear,
               "parameter " + std::to_string(i) + " differs from the CPU's");
    });
  });
}

at::Tensor batch(int step, const Group& g, at::Device device) {
  return part(rows_of_step(step), g).to(device);
}

void loop(
    Small& net, torch::optim::Optimizer& optimizer, const Group& g, at::Device device,
    const std::function<void()>& before_step = [] {}) {
  for (int step = 0; step < kSteps; ++step) {
    optimizer.zero_grad();
    mean_loss(net, batch(step, g, device)).backward();
    before_step();
    optimizer.step();
  }
}

void train_ddp(Small& net, Group g, at::Device device, DdpOptions options) {
  DistributedDataParallel ddp(net, g, std::move(options));
  torch::optim::AdamW optimizer(net->parameters(), torch::optim::AdamWOptions(1e-2));
  loop(net, optimizer, g, device);
}

std::string refusal_on_gpus(const std::function<void(Group, at::Device)>& body) {
  std::string said;
  run_on_gpus(1, [&](Group g, at::Device device) { said = refusal([&] { body(g, device); }); });
  return said;
}

}  // namespace

TEST(gpu_gradients, ddp_trains) {
  TRIREME_NEEDS_GPU();
  for (const size_t bucket : {size_t{0}, size_t{256}})
    same_as_on_the_cpu([&](Small& net, Group g, at::Device device) {
      DdpOptions options;
      options.bucket_bytes = options.first_bucket_bytes = bucket;
      train_ddp(net, g, device, options);
    });
}

TEST(gpu_gradients, ddp_trains_with_every_option_and_hook) {
  TRIREME_NEEDS_GPU();
  const std::vector<std::function<void(DdpOptions&)>> changes = {
      [](DdpOptions& o) { o.check_finite = true; },
      [](DdpOptions& o) { o.find_unused_parameters = true; },
      [](DdpOptions& o) { o.static_graph = true; },
      [](DdpOptions& o) { o.buffers = BufferPolicy::mean; },
      [](DdpOptions& o) { o.delayed = {"a.*"}; },
      [](DdpOptions& o) { o.hook = cast_hook(at::kFloat); },
      [](DdpOptions& o) { o.hook = scatter_gather_hook(); },
      [](DdpOptions& o) { o.hook = adasum_hook()->hook(); },
      [](DdpOptions& o) { o.hook = parameter_server_hook(); },
  };
  for (const auto& change : changes)
    same_as_on_the_cpu([&](Small& net, Group g, at::Device device) {
      DdpOptions options;
      change(options);
      train_ddp(net, g, device, options);
    });
}

TEST(gpu_gradients, the_noise_scale_is_that_of_the_cpu) {
  TRIREME_NEEDS_GPU();
  const auto parts = [](Group g, at::Device device) {
    NoiseScaleHook noise;
    const GradientParts nothing = noise.take(g, 0, 1, 1, 16);
    expect(nothing.count == 0, "parts before any gradient");
    Small net = make(1);
    net->to(device);
    DistributedDataParallel ddp(net, g, {.hook = noise.hook()});
    mean_loss(net, part(rows_of_step(0), g).to(device)).backward();
    return noise.take(g, 8, 1, 1, 16);
  };
  run_on_gpus(2, [&](Group g, at::Device device) {
    const GradientParts there = parts(g, device);
    run_threads(g.size(), [&](Group plain) {
      const GradientParts here = parts(plain, at::kCPU);
      expect(there.count == g.size() && here.count == g.size() &&
                 std::abs(there.parts - here.parts) <= 1e-9 * here.parts,
             "another noise scale");
    });
  });
}

TEST(gpu_gradients, a_gradient_that_is_not_finite_is_named) {
  TRIREME_NEEDS_GPU();
  run_on_gpus(2, [](Group g, at::Device device) {
    Small net = make(1);
    net->to(device);
    DistributedDataParallel ddp(net, g, {.check_finite = true});
    std::string said;
    try {
      (net->forward(input(4).to(device)) * (g.rank() == 0 ? NAN : 1.0)).sum().backward();
    } catch (const NumericError& e) {
      said = e.what();
    }
    expect(said.find("rank 0") != std::string::npos, "said: " + said);
  });
}

TEST(gpu_gradients, networks_that_differ_are_a_mismatch) {
  TRIREME_NEEDS_GPU();
  if (gpu_count() < 2) GTEST_SKIP() << "needs a GPU for each of two ranks";
  run_on_gpus(2, [](Group g, at::Device device) {
    Small net(g.rank() == 0 ? 17 : 18);
    net->to(device);
    std::string said;
    try {
      DistributedDataParallel ddp(net, g);
    } catch (const Mismatch& e) {
      said = e.what();
    }
    expect(said.find("parameter") != std::string::npos, "said: " + said);
  });
}

TEST(gpu_gradients, sparse_gradients_of_an_embedding_are_added) {
  if (gpus_stand_in()) GTEST_SKIP() << "needs a GPU: what stands in has no sparse tensors";
  TRIREME_NEEDS_GPU();
  run_on_gpus(2, [](Group g, at::Device device) {
    torch::nn::Embedding e(torch::nn::EmbeddingOptions(6, 3).sparse(true));
    e->to(device);
    DistributedDataParallel ddp(e, g);
    at::Tensor rows = at::full({2}, g.rank(), at::TensorOptions(at::kLong).device(device));
    e->forward(rows).sum().backward();
    const at::Tensor dense = e->weight.grad().to_dense().cpu();
    expect(dense.narrow(0, 0, g.size()).equal(at::full({g.size(), 3}, 2.0 / g.size())),
           "the gradient has other rows");
  });
}

TEST(gpu_gradients, zero_of_every_stage_trains_and_clips) {
  TRIREME_NEEDS_GPU();
  for (const bool clip : {false, true})
    for (const ZeroStage stage : {ZeroStage::optimizer, ZeroStage::gradients})
      same_as_on_the_cpu([&](Small& net, Group g, at::Device device) {
        ShardedDataParallel zero(net, g, {.stage = stage, .bucket_bytes = 512});
        ShardedOptimizer<torch::optim::AdamW> optimizer(zero.sharded(),
                                                        torch::optim::AdamWOptions(1e-2));
        for (int step = 0; step < kSteps; ++step) {
          optimizer.zero_grad();
          mean_loss(net, batch(step, g, device)).backward();
          if (clip) zero.sharded().clip_grad_norm_(0.1);
          optimizer.step();
        }
      });
}

TEST(gpu_gradients, fully_sharded_units_train_and_clip) {
  TRIREME_NEEDS_GPU();
  for (const bool clip : {false, true})
    same_as_on_the_cpu([&](Small& net, Group g, at::Device device) {
      Small whole = wide();
      whole->to(device);
      {
        FullySharded sharded(g);
        auto a = fully_shard(net->a, sharded, "a"), b = fully_shard(net->b, sharded, "b"),
             c = fully_shard(net->c, sharded, "c");
        sharded.root(*net);
        ShardedOptimizer<torch::optim::AdamW> optimizer(sharded, torch::optim::AdamWOptions(1e-2));
        for (int step = 0; step < kSteps; ++step) {
          optimizer.zero_grad();
          at::Tensor y = sharded.run(
              [&](at::Tensor x) {
                return c.forward(torch::tanh(b.forward(torch::tanh(a.forward(x)))));
              },
              batch(step, g, device));
          y.pow(2).sum(1).mean().backward();
          if (clip) sharded.clip_grad_norm_(0.1);
          optimizer.step();
        }
        const FullySharded::Gathered readable(sharded);
        at::NoGradGuard no_grad;
        const auto from = net->parameters(), to = whole->parameters();
        for (size_t i = 0; i < to.size(); ++i) to[i].detach().copy_(from[i]);
      }
      net = whole;
    });
}

// Alone in its memory, a parameter without elements has no address to point to.
TEST(gpu_gradients, parameters_without_elements_have_a_device) {
  TRIREME_NEEDS_GPU();
  const auto parameters = [](at::Device device) {
    const at::TensorOptions on = at::TensorOptions().device(device);
    return NamedTensors{{"p", at::ones({3}, on.dtype(at::kDouble)).requires_grad_()},
                        {"none", at::ones({0}, on.dtype(at::kFloat)).requires_grad_()}};
  };
  run_on_gpus(2, [&](Group g, at::Device device) {
    const NamedTensors p = parameters(device);
    DistributedDataParallel ddp(p, {}, g);
    (p[0].second.sum() * 3 + p[1].second.sum()).backward();
    expect(p[0].second.grad().cpu().equal(at::full({3}, 3.0, at::kDouble)), "another gradient");
  });
  run_on_gpus(2, [&](Group g, at::Device device) {
    const NamedTensors p = parameters(device);
    ShardedDataParallel zero(p, {}, g);
    (p[0].second.sum() * 3 + p[1].second.sum()).backward();
    for (const at::Tensor& t : zero.sharded().parameters())
      expect(t.device() == device, "a shard is on " + t.device().str());
  });
}

TEST(gpu_gradients, averaging_of_weights_trains) {
  TRIREME_NEEDS_GPU();
  for (const bool outer : {false, true})
    same_as_on_the_cpu([&](Small& net, Group g, at::Device device) {
      NamedTensors parameters;
      for (const auto& p : net->named_parameters()) parameters.emplace_back(p.key(), p.value());
      auto averager = outer ? diloco(parameters, g, {.period = 2})
                            : average_periodically(parameters, g, {.period = 2});
      torch::optim::AdamW optimizer(net->parameters(), torch::optim::AdamWOptions(1e-2));
      for (int step = 0; step < 4; ++step) {
        optimizer.zero_grad();
        mean_loss(net, batch(step, g, device)).backward();
        optimizer.step();
        averager->step();
      }
    });
}

// Products of matrices and means of absolute values are added up in another order there.
TEST(gpu_gradients, codecs_give_the_bits_of_the_cpu_but_for_scales_of_signs_and_powersgd) {
  TRIREME_NEEDS_GPU();
  for (const CompressionOptions& options : every_codec()) {
    if (options.type == "auto") continue;  // what it takes depends on the clock
    const double near = options.type == "sign" ? 1e-5 : options.type == "powersgd" ? 1e-4 : 0;
    const auto rounds = [&](const Group& g, at::Device device) {
      Rounds r(g, hook_of(options), mixed_shapes(), ReduceOp::sum, at::kFloat, 2500, device);
      for (int round = 0; round < 3; ++round) r.round(round);
      return at::cat({r.result(), r.kept()});
    };
    run_on_gpus(2, [&](const Group& g, at::Device device) {
      const at::Tensor there = rounds(g, device);
      run_threads(g.size(), [&](const Group& plain) {
        const at::Tensor here = rounds(plain, at::kCPU);
        if (plain.rank() == g.rank())
          expect(there.allclose(here, near, near), options.type + " gives others than on the CPU");
      });
    });
  }
}

TEST(gpu_gradients, what_computes_on_the_cpu_refuses_them_by_name) {
  TRIREME_NEEDS_GPU();
  const std::string file = refusal_on_gpus([](Group g, at::Device device) {
    Small net = make(1);
    net->to(device);
    FullySharded sharded(g, {.file = ShardFileOptions{{::testing::TempDir()}}});
    fully_shard(net->a, sharded, "a");
  });
  EXPECT_TRUE(has(file, "offload") && has(file, "'a.weight' is on cuda")) << file;
  const std::string shared = refusal_on_gpus([](Group g, at::Device device) {
    Small net = make(1);
    net->to(device);
    ShardedDataParallel zero(net, g, {.share_weights = true});
  });
  EXPECT_TRUE(has(shared, "local")) << shared;
}

// Ranks with fewer batches; a mesh of groups; calls that autograd goes through.
TEST(gpu_gradients, uneven_batches_meshes_and_calls_in_the_graph) {
  TRIREME_NEEDS_GPU();
  run_on_gpus(2, [](Group g, at::Device device) {
    Small net = make(1);
    net->to(device);
    DistributedDataParallel ddp(net, g);
    torch::optim::SGD optimizer(net->parameters(), 0.1);
    join({&ddp}, [&] {
      for (int i = 0; i < 2 + g.rank(); ++i) {
        optimizer.zero_grad();
        mean_loss(net, input(4).to(device)).backward();
        optimizer.step();
      }
    });
    at::Tensor sum = net->a->weight.detach().clone();
    g.all_reduce(sum, ReduceOp::avg).wait();
    expect(sum.allclose(net->a->weight.detach()), "ranks end with other weights");
    DeviceMesh mesh(g, {{"dp", g.size()}});
    at::Tensor ones = at::ones({2}, at::TensorOptions(at::kDouble).device(device)).requires_grad_();
    at::Tensor all = functional::all_reduce(ones, mesh.group("dp"));
    expect(all.sum().item<double>() == 2 * g.size(), "another sum");
    all.sum().backward();
    expect(ones.grad().cpu().equal(at::full({2}, g.size(), at::kDouble)), "another gradient");
  });
}

// Through pinned memory of the host. (Streams that are late: tests/device.)
TEST(gpu_gradients, groups_of_the_cpu_train_them_too) {
  TRIREME_NEEDS_GPU();
  const at::Device device(at::kCUDA, 0);
  const auto train = [](Group g, Small& net, at::Device where) {
    DistributedDataParallel ddp(net, g);
    torch::optim::SGD optimizer(net->parameters(), 0.1);
    for (int i = 0; i < 3; ++i) {
      optimizer.zero_grad();
      mean_loss(net, input(4).to(where)).backward();
      optimizer.step();
    }
  };
  for (const char* backend : {"local", "gloo"})
    run_threads(
        1,
        [&](Group g) {
          Small there = make(1), here = make(1);
          there->to(device);
          train(g, there, device);
          train(g, here, at::kCPU);
          for (size_t i = 0; i < here->parameters().size(); ++i)
            expect(there->parameters()[i].allclose(here->parameters()[i].to(device), 1e-6, 1e-8),
                   "other weights over " + std::string(backend));
          at::Tensor t = at::ones({3}, at::TensorOptions().device(device));
          g.all_reduce(t, premul_sum(3)).wait();
          expect(t.cpu().equal(at::full({3}, 3.f)), "another sum");
        },
        ThreadOptions{std::chrono::minutes(1), backend});
}

}  // namespace gradients_test
