// SPDX-License-Identifier: Apache-2.0
#include "trireme/layers/sync_batch_norm.h"

#include <c10/core/DeviceGuard.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/moduledict.h>
#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>
#include <torch/types.h>

#include <algorithm>
#include <numeric>

#include "tests/support/backends.h"
#include "tests/support/refusals.h"
#include "trireme/base/error.h"
#include "trireme/comm/fake/traffic.h"
#include "trireme/comm/start/run.h"
#include "trireme/grad/ddp.h"

namespace sync_batch_norm_test {

using namespace trireme;
using namespace trireme::testing;
using torch::nn::BatchNormOptions;

namespace {

constexpr int64_t kChannels = 3;

at::Tensor filled(std::vector<int64_t> sizes, double phase, at::ScalarType type = at::kDouble) {
  int64_t count = 1;
  for (int64_t s : sizes) count *= s;
  return torch::arange(count, at::kDouble)
      .add(phase)
      .mul(1.7)
      .sin()
      .mul(2)
      .add(0.5)
      .view(sizes)
      .to(type);
}

// LibTorch's over the whole batch; D does not matter to what it computes.
struct Whole {
  Whole(const BatchNormOptions& o, at::ScalarType type, at::Device device)
      : one(o), two(o), three(o) {
    for (torch::nn::Module* m : all()) m->to(device, type);
  }
  std::vector<torch::nn::Module*> all() { return {one.get(), two.get(), three.get()}; }
  torch::nn::Module& of(int64_t dim) { return *all()[static_cast<size_t>(dim <= 3 ? 0 : dim - 3)]; }
  at::Tensor forward(const at::Tensor& x) {
    return x.dim() <= 3 ? one(x) : x.dim() == 4 ? two(x) : three(x);
  }
  torch::nn::BatchNorm1d one;
  torch::nn::BatchNorm2d two;
  torch::nn::BatchNorm3d three;
};

void expect_near(const at::Tensor& a, const at::Tensor& b, double most, const std::string& what) {
  ASSERT_EQ(a.defined(), b.defined()) << what;
  if (!a.defined()) return;
  ASSERT_EQ(a.sizes(), b.sizes()) << what;
  if (a.numel() == 0) return;
  EXPECT_LE((a.to(at::kDouble) - b.to(at::kDouble)).abs().max().item<double>(), most) << what;
}

at::Tensor find(const torch::nn::Module& m, const std::string& name, bool buffer) {
  const auto list = buffer ? m.named_buffers() : m.named_parameters();
  const at::Tensor* t = list.find(name);
  return t ? *t : at::Tensor();
}

/// Each rank normalises its rows of one batch, twice; outputs, gradients and running statistics are
/// those of BatchNorm over the batch.
void same_as_whole(Group g, at::Device device, const std::vector<int64_t>& rows,
                   const std::vector<int64_t>& rest, const BatchNormOptions& options,
                   at::ScalarType type, double most) {
  const int64_t total = std::accumulate(rows.begin(), rows.end(), int64_t{0});
  std::vector<int64_t> sizes{total, kChannels};
  sizes.insert(sizes.end(), rest.begin(), rest.end());
  auto values = [&](double phase) { return filled(sizes, phase, type).to(device); };
  Whole whole(options, type, device);
  SyncBatchNorm mine(options, g);
  mine->to(device, type);
  torch::nn::Module& plain = whole.of(static_cast<int64_t>(sizes.size()));
  if (options.affine()) {
    torch::NoGradGuard no_grad;
    for (torch::nn::Module* m : {&plain, static_cast<torch::nn::Module*>(mine.get())}) {
      m->named_parameters()["weight"].copy_(filled({kChannels}, 7));
      m->named_parameters()["bias"].copy_(filled({kChannels}, 9));
    }
  }
  const int64_t from = std::accumulate(rows.begin(), rows.begin() + g.rank(), int64_t{0});
  const int64_t count = rows[static_cast<size_t>(g.rank())];
  for (int step = 0; step < 2; ++step) {
    plain.zero_grad();
    mine->zero_grad();
    at::Tensor all = values(3 * step).requires_grad_();
    at::Tensor part = all.detach().narrow(0, from, count).clone().requires_grad_();
    const at::Tensor weights = values(100);
    at::Tensor y = whole.forward(all), z = mine->forward(part);
    y.mul(weights).sum().backward();
    z.mul(weights.narrow(0, from, count)).sum().backward();
    expect_near(z, y.narrow(0, from, count), most, "output");
    expect_near(part.grad(), all.grad().narrow(0, from, count), most, "gradient of x");
    for (const char* name : {"weight", "bias"}) {
      if (!options.affine()) continue;
      at::Tensor sum = find(*mine, name, false).grad().clone();
      g.all_reduce(sum).wait();
      expect_near(sum, find(plain, name, false).grad(), 10 * most, name);
    }
    for (const char* name : {"running_mean", "running_var", "num_batches_tracked"})
      expect_near(find(*mine, name, true), find(plain, name, true), most, name);
  }
  mine->eval();
  plain.eval();
  const at::Tensor x = values(50);
  expect_near(mine->forward(x), whole.forward(x), most, "output in eval mode");
}

void same_as_whole(const std::vector<int64_t>& rows, const std::vector<int64_t>& rest,
                   const BatchNormOptions& options, at::ScalarType type, double most) {
  run_threads(static_cast<int>(rows.size()),
              [&](Group g) { same_as_whole(g, at::kCPU, rows, rest, options, type, most); });
}

}  // namespace

TEST(layers_sync_batch_norm, is_batch_norm_over_the_batches_of_all_ranks) {
  for (const std::vector<int64_t>& rows :
       {std::vector<int64_t>{5}, {4, 4}, {1, 6}, {3, 3, 3, 3}, {1, 4, 2, 3}})
    for (const std::vector<int64_t>& rest : {std::vector<int64_t>{}, {4}, {2, 3}, {2, 1, 3}}) {
      same_as_whole(rows, rest, BatchNormOptions(kChannels), at::kFloat, 1e-6);
      same_as_whole(rows, rest, BatchNormOptions(kChannels), at::kDouble, 1e-12);
    }
}

TEST(layers_sync_batch_norm, on_gpus_is_batch_norm_over_the_batches_of_all_ranks) {
  const int n = present("nccl") ? std::min(gpus(), 4) : 0;
  if (n == 0) GTEST_SKIP() << "needs a GPU";
  SpawnOptions options;
  options.backend = "nccl";
  options.args = {"--gtest_filter=layers_sync_batch_norm.on_gpus_*"};
  spawn(
      n,
      [](Group g) {
        const at::Device device(at::kCUDA, static_cast<c10::DeviceIndex>(g.rank()));
        const c10::DeviceGuard guard(device);
        std::vector<int64_t> rows;
        for (int r = 0; r < g.size(); ++r) rows.push_back(r + 3);
        for (const std::vector<int64_t>& rest : {std::vector<int64_t>{}, {2, 3}, {2, 1, 3}}) {
          same_as_whole(g, device, rows, rest, BatchNormOptions(kChannels), at::kFloat, 1e-5);
          same_as_whole(g, device, rows, rest, BatchNormOptions(kChannels), at::kDouble, 1e-11);
        }
        if (::testing::Test::HasFailure()) throw Error("not the values of BatchNorm");
      },
      options);
}

TEST(layers_sync_batch_norm, ranks_without_samples_take_part) {
  for (const std::vector<int64_t>& rows : {std::vector<int64_t>{0, 4}, {4, 0}, {0, 3, 0, 5}})
    same_as_whole(rows, {2, 2}, BatchNormOptions(kChannels), at::kDouble, 1e-12);
}

TEST(layers_sync_batch_norm, every_option_of_batch_norm_means_the_same) {
  for (bool affine : {false, true})
    for (bool tracked : {false, true})
      for (bool cumulative : {false, true}) {
        BatchNormOptions o(kChannels);
        o.affine(affine).track_running_stats(tracked).eps(1e-2);
        if (cumulative) o.momentum({});
        same_as_whole({2, 3}, {2}, o, at::kDouble, 1e-12);
      }
}

TEST(layers_sync_batch_norm, a_mean_that_is_large_beside_the_deviation_cancels_nothing) {
  run_threads(2, [](Group g) {
    SyncBatchNorm mine(BatchNormOptions(2), g);
    const at::Tensor whole = filled({8, 2}, 0).add(3e4).to(at::kFloat);
    const at::Tensor exact =
        at::batch_norm(whole.to(at::kDouble), {}, {}, {}, {}, true, 0, 1e-5, false);
    expect_near(mine->forward(whole.narrow(0, 4 * g.rank(), 4)), exact.narrow(0, 4 * g.rank(), 4),
                3e-3, "output");  // x itself has steps of 2e-3
    expect_near(mine->running_var, whole.to(at::kDouble).var(0, true).mul(0.1).add(0.9), 3e-5,
                "variance");
  });
}

TEST(layers_sync_batch_norm, half_types_compute_in_float32_and_keep_their_type) {
  run_threads(2, [](Group g) {
    for (bool half_parameters : {false, true}) {
      SyncBatchNorm mine(BatchNormOptions(kChannels), g), wide(BatchNormOptions(kChannels), g);
      if (half_parameters) mine->to(at::kBFloat16);
      at::Tensor x = filled({4, kChannels, 5}, g.rank(), at::kBFloat16).requires_grad_();
      at::Tensor w = x.detach().to(at::kFloat).requires_grad_();
      at::Tensor y = mine->forward(x), z = wide->forward(w);
      EXPECT_EQ(y.scalar_type(), at::kBFloat16);
      expect_near(y, z, 1.0 / 128, "output");
      const at::Tensor weights = filled({4, kChannels, 5}, 20, at::kBFloat16);
      y.mul(weights).sum().backward();
      z.mul(weights.to(at::kFloat)).sum().backward();
      EXPECT_EQ(x.grad().scalar_type(), at::kBFloat16);
      expect_near(x.grad(), w.grad(), 1.0 / 64, "gradient of x");
      expect_near(mine->weight.grad(), wide->weight.grad(), 0.1, "gradient of weight");
      mine->eval();
      wide->eval();
      EXPECT_EQ(mine->forward(x).scalar_type(), at::kBFloat16);
      expect_near(mine->forward(x), wide->forward(w), 1.0 / 32, "output in eval mode");
    }
  });
}

TEST(layers_sync_batch_norm, gradients_pass_the_check_on_two_ranks) {
  // Both ranks hold the whole input and normalise their part of it, so that each can shake any
  // element; the outputs of both, weighted differently, make the loss.
  run_threads(2, [](Group g) {
    SyncBatchNorm mine(BatchNormOptions(2), g);
    mine->to(at::kDouble);
    auto f = [&](const std::vector<at::Tensor>& in) {
      const bool first = g.rank() == 0;
      mine->weight.set_data(in[1].detach());
      mine->bias.set_data(in[2].detach());
      at::Tensor y = mine->forward(in[0].narrow(0, first ? 0 : 2, first ? 2 : 3));
      // What the other rank has, without a graph: its gradient arrives through the collective.
      std::vector<at::Tensor> both{at::empty({2, 2, 2}, at::kDouble),
                                   at::empty({3, 2, 2}, at::kDouble)};
      g.all_gather(both, y.detach()).wait();
      both[first ? 0 : 1] = y;
      return at::cat(both);
    };
    // The gradient of a rank's own rows is whole; what is asked of it is no more.
    at::Tensor x = filled({5, 2, 2}, 1).requires_grad_();
    at::Tensor w = filled({2}, 5), b = filled({2}, 6);
    const at::Tensor weight = at::linspace(-1, 1, 20, at::kDouble).view({5, 2, 2});
    f({x, w, b}).mul(weight).sum().backward();
    at::Tensor gradient = x.grad().clone();
    g.all_reduce(gradient).wait();  // each rank has the rows that are its own, zeros elsewhere
    at::NoGradGuard no_grad;
    for (int64_t i = 0; i < x.numel(); ++i) {
      auto* p = x.data_ptr<double>() + i;
      const double before = *p;
      *p = before + 1e-5;
      const double up = f({x, w, b}).mul(weight).sum().item<double>();
      *p = before - 1e-5;
      const double down = f({x, w, b}).mul(weight).sum().item<double>();
      *p = before;
      EXPECT_NEAR(gradient.view({-1})[i].item<double>(), (up - down) / 2e-5, 1e-8) << i;
    }
  });
}

TEST(layers_sync_batch_norm, a_forward_is_one_collective_and_a_backward_one_more) {
  ThreadOptions options;
  options.backend = "fake";
  run_threads(
      3,
      [](Group g) {
        SyncBatchNorm mine(BatchNormOptions(kChannels), g);
        auto calls = [&] { return fake_traffic(g).total().calls; };
        const auto before = calls();
        at::Tensor y = mine->forward(filled({4, kChannels}, 0).requires_grad_());
        EXPECT_EQ(calls() - before, 1u);
        y.sum().backward();
        EXPECT_EQ(calls() - before, 2u);
        mine->forward(filled({4, kChannels}, 0)).sum().backward();  // x needs no gradient
        EXPECT_EQ(calls() - before, 3u);
        mine->eval();
        mine->forward(filled({4, kChannels}, 0).requires_grad_()).sum().backward();
        EXPECT_EQ(calls() - before, 3u);
      },
      options);
}

TEST(layers_sync_batch_norm, what_cannot_be_normalised_is_refused_with_the_reason) {
  run_threads(2, [](Group g) {
    SyncBatchNorm mine(BatchNormOptions(kChannels), g);
    EXPECT_TRUE(has(refusal([&] { mine->forward(torch::ones({4, 2})); }), "[n, 3]"));
    EXPECT_TRUE(has(refusal([&] { mine->forward(torch::ones({4})); }), "1 dims"));
    EXPECT_TRUE(has(refusal([&] {
                      mine->forward(torch::ones({4, 3}, at::kLong));
                    }),
                    "floating type"));
    // One value per channel in all: every rank hears of it.
    EXPECT_TRUE(has(refusal([&] { mine->forward(torch::ones({g.rank(), 3})); }), "more than one"));
    SyncBatchNorm alone{BatchNormOptions(kChannels)};
    EXPECT_TRUE(has(refusal([&] { alone->forward(torch::ones({4, 3})); }), "no group"));
    alone->eval();
    EXPECT_EQ(alone->forward(torch::ones({4, 3})).size(0), 4);
  });
  EXPECT_TRUE(has(refusal([] { SyncBatchNorm(BatchNormOptions(0)); }), "0 features"));
}

TEST(layers_sync_batch_norm, clones_keep_group_options_and_values) {
  run_threads(2, [](Group g) {
    SyncBatchNorm mine(BatchNormOptions(kChannels).eps(0.5), g);
    mine->forward(filled({4, kChannels}, g.rank(), at::kFloat));
    auto copy = std::dynamic_pointer_cast<SyncBatchNormImpl>(mine->clone());
    EXPECT_EQ(copy->options.eps(), 0.5);
    EXPECT_TRUE(copy->running_mean.equal(mine->running_mean));
    EXPECT_NE(copy->running_mean.data_ptr(), mine->running_mean.data_ptr());
    const at::Tensor x = filled({4, kChannels}, g.rank(), at::kFloat);
    EXPECT_TRUE(copy->forward(x).equal(mine->forward(x)));
  });
}

// The converter.

namespace {

struct HalvesImpl : torch::nn::Module {
  HalvesImpl() {
    front = register_module(
        "front", torch::nn::Sequential(torch::nn::Conv2d(1, 4, 3), torch::nn::BatchNorm2d(4),
                                       torch::nn::ReLU(), torch::nn::Flatten()));
    back = register_module("back", torch::nn::ModuleList());
    back->push_back(torch::nn::Linear(64, 5));
    back->push_back(torch::nn::BatchNorm1d(5));
    named = register_module("named", torch::nn::ModuleDict());
    named->update({{"norm", torch::nn::BatchNorm1d(5).ptr()}});
    declared = register_module("declared", SyncBatchNorm(BatchNormOptions(5)));
  }
  at::Tensor forward(const at::Tensor& x) {
    at::Tensor y = back->at<torch::nn::LinearImpl>(0).forward(front->forward(x));
    y = through(*back[1], y);
    y = through(*named["norm"], y.tanh());
    return declared(y.tanh());
  }
  static at::Tensor through(torch::nn::Module& m, const at::Tensor& x) {
    if (auto* plain = m.as<torch::nn::BatchNorm1d>()) return plain->forward(x);
    return m.as<SyncBatchNorm>()->forward(x);
  }
  torch::nn::Sequential front{nullptr};
  torch::nn::ModuleList back{nullptr};
  torch::nn::ModuleDict named{nullptr};
  SyncBatchNorm declared{nullptr};
};
TORCH_MODULE(Halves);

struct MemberImpl : torch::nn::Module {
  MemberImpl() : norm(register_module("norm", torch::nn::BatchNorm2d(4))) {
    list = register_module("list", torch::nn::Sequential(torch::nn::BatchNorm2d(4)));
  }
  torch::nn::BatchNorm2d norm;
  torch::nn::Sequential list{nullptr};
};
TORCH_MODULE(Member);

}  // namespace

TEST(layers_sync_batch_norm, the_converter_replaces_what_containers_hold_and_keeps_their_tensors) {
  run_threads(2, [](Group g) {
    Halves net;
    const auto before = net->named_parameters(), buffers = net->named_buffers();
    net->back->eval();
    EXPECT_EQ(convert_sync_batch_norm(net, g), 4);
    EXPECT_TRUE(net->front[1]->as<SyncBatchNorm>());
    EXPECT_TRUE(net->back[1]->as<SyncBatchNorm>());
    EXPECT_TRUE(net->named["norm"]->as<SyncBatchNorm>());
    EXPECT_FALSE(net->back[1]->is_training());
    EXPECT_TRUE(net->front[1]->is_training());
    EXPECT_EQ(net->declared->group().size(), 2);
    const auto after = net->named_parameters(), buffers_after = net->named_buffers();
    ASSERT_EQ(after.keys(), before.keys());
    ASSERT_EQ(buffers_after.keys(), buffers.keys());
    for (const auto& item : before) EXPECT_TRUE(item.value().is_same(after[item.key()]));
    for (const auto& item : buffers) EXPECT_TRUE(item.value().is_same(buffers_after[item.key()]));
    EXPECT_EQ(convert_sync_batch_norm(net, g), 4);  // again: only groups are given
    net->train();
    EXPECT_EQ(net->forward(filled({3, 1, 6, 6}, g.rank(), at::kFloat)).size(1), 5);
  });
}

TEST(layers_sync_batch_norm, the_converter_names_what_it_cannot_exchange_and_changes_nothing) {
  run_threads(1, [](Group g) {
    Member net;
    std::string text = refusal([&] { convert_sync_batch_norm(net, g); });
    EXPECT_TRUE(has(text, "'norm'") && has(text, "is a member") &&
                has(text, "trireme::SyncBatchNorm"))
        << text;
    EXPECT_FALSE(has(text, "'list.0'")) << text;
    EXPECT_TRUE(net->list[0]->as<torch::nn::BatchNorm2d>());

    torch::nn::BatchNorm1d kept(3);
    torch::nn::Sequential list(torch::nn::Linear(2, 3), kept);
    text = refusal([&] { convert_sync_batch_norm(list, g); });
    EXPECT_TRUE(has(text, "'1'") && has(text, "held elsewhere too")) << text;
    EXPECT_TRUE(has(refusal([&] { convert_sync_batch_norm(kept, g); }), "the module itself"));
    EXPECT_TRUE(has(refusal([&] { convert_sync_batch_norm(list, Group()); }), "empty"));
  });
}

TEST(layers_sync_batch_norm, under_ddp_two_ranks_train_as_one_with_the_whole_batch) {
  const at::Tensor batch = filled({6, 1, 6, 6}, 2, at::kFloat);
  const at::Tensor target = filled({6, 5}, 30, at::kFloat);
  auto train = [&](Group g) {
    Halves net;
    {
      at::NoGradGuard no_grad;  // LibTorch's generator is the process's, which the ranks share
      for (auto& p : net->parameters()) p.copy_(filled(p.sizes().vec(), 4).mul(0.3));
    }
    convert_sync_batch_norm(net, g);
    DistributedDataParallel ddp(net, g);
    torch::optim::SGD optimizer(net->parameters(), 0.1);
    const int64_t rows = 6 / g.size();
    for (int step = 0; step < 4; ++step) {
      optimizer.zero_grad();
      torch::mse_loss(net->forward(batch.narrow(0, rows * g.rank(), rows)),
                      target.narrow(0, rows * g.rank(), rows))
          .backward();
      optimizer.step();
    }
    std::vector<at::Tensor> all;
    for (const at::Tensor& t : net->parameters()) all.push_back(t.detach());
    for (const at::Tensor& t : net->buffers()) all.push_back(t);
    return all;
  };
  std::vector<at::Tensor> one;
  run_threads(1, [&](Group g) { one = train(g); });
  std::vector<std::vector<at::Tensor>> two(2);
  run_threads(2, [&](Group g) { two[static_cast<size_t>(g.rank())] = train(g); });
  for (const auto& mine : two) {
    ASSERT_EQ(mine.size(), one.size());
    for (size_t i = 0; i < one.size(); ++i)
      expect_near(mine[i], one[i], 2e-6, "tensor " + std::to_string(i));
  }
}

}  // namespace sync_batch_norm_test
