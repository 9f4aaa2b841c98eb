// SPDX-License-Identifier: Apache-2.0
#include "trireme/models/parallel_gpt.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/optim/sgd.h>

#include <functional>
#include <map>

#include "trireme/base/check.h"
#include "trireme/base/file.h"
#include "trireme/base/philox.h"
#include "trireme/checkpoint/own_state.h"
#include "trireme/comm/start/run.h"
#include "trireme/grad/ddp.h"
#include "trireme/layers/tensor_parallel/gradients.h"
#include "trireme/mesh/mesh.h"
#include "trireme/models/gpt.h"
#include "trireme/models/init.h"
#include "trireme/shard/fully_shard.h"
#include "trireme/shard/sharded_data_parallel.h"
#include "trireme/shard/sharded_optimizer.h"
#include "trireme/tensor/parameter_layout.h"
#include "trireme/tensor/random/random.h"
#include "trireme/tensor/tied_tensors.h"

namespace parallel_gpt_test {

using namespace trireme;

namespace {

ParallelGptOptions small(bool tied) {
  ParallelGptOptions o;
  o.layers = 2, o.width = 24, o.heads = 12, o.context = 8, o.vocab = 29, o.dropout = 0.2;
  o.tied_head = tied;
  return o;
}

constexpr uint64_t kSeed = 11;
const int kRanks[] = {1, 2, 3, 4};

}  // namespace

TEST(models_parallel_gpt, its_parameters_have_the_names_and_bits_of_the_gpts) {
  for (const bool tied : {false, true}) {
    const Gpt whole(small(tied), kSeed);
    const auto expected = whole.named_parameters();
    for (const int ranks : kRanks)
      run_threads(ranks, [&](Group g) {
        const ParallelGpt gpt(TensorParallel(g), small(tied), kSeed);
        const auto parameters = gpt.named_parameters();
        const auto layouts = layouts_of(gpt);
        trireme::check<Error>(parameters.size() == expected.size(), "{} parameters instead of {}",
                              parameters.size(), expected.size());
        for (const auto& item : parameters) {
          const at::Tensor part = part_of(expected[item.key()], layouts.at(item.key()));
          trireme::check<Error>(item.value().equal(part), "{} differs", item.key());
        }
      });
  }
}

TEST(models_parallel_gpt, uniform_weights_keep_the_fan_in_of_the_whole) {
  run_threads(3, [](Group g) {
    const TensorParallel tp(g);
    ParallelGeluMlp mlp(tp, 8, 40);
    init_uniform_fan_in(mlp, kSeed);
    for (const auto& [name, layout] : layouts_of(mlp)) {
      at::Tensor whole = at::empty(layout.shape);
      const double bound = 1 / std::sqrt(name.starts_with("up") ? 8.0 : 40.0);
      uniform_(whole, stable_hash({kSeed, stable_hash(name)}), -bound, bound);
      trireme::check<Error>(mlp.named_parameters()[name].equal(part_of(whole, layout)), "{}", name);
    }
  });
}

TEST(models_parallel_gpt, loss_and_gradients_are_the_gpts_with_dropout) {
  const at::Tensor ids = at::arange(21, at::kLong).mul(5).remainder(29).view({3, 7});
  const at::Tensor target = at::arange(21, at::kLong).mul(3).add(1).remainder(29).view({3, 7});
  const RandomContext context{3, 5, {7, 8, 9}};
  for (const bool tied : {false, true}) {
    Gpt whole(small(tied), kSeed);
    whole.to(at::kDouble);
    at::Tensor expected;
    {
      const RandomScope scope(context);
      expected = whole.loss_sum(whole.forward(ids), target);
    }
    expected.backward();
    const auto gradients = whole.named_parameters();
    for (const int ranks : kRanks)
      for (const bool sequence : {false, true})
        for (const int64_t recomputed : {0, 1})
          run_threads(ranks, [&](Group g) {
            const TensorParallel tp(g, {.sequence_parallel = sequence});
            auto options = small(tied);
            options.recompute_every = recomputed;
            ParallelGpt gpt(tp, options, kSeed);
            gpt.to(at::kDouble);
            const RandomScope scope(context);
            const at::Tensor loss = gpt.loss_sum(gpt.forward(ids), target);
            const double off = std::abs(loss.item<double>() - expected.item<double>());
            trireme::check<Error>(off < 1e-9, "the loss is off by {}", off);
            loss.backward();
            add_shared_gradients(gpt, tp);
            const auto layouts = layouts_of(gpt);
            for (const auto& [name, p] : named_parameters(gpt))
              trireme::check<Error>(
                  at::allclose(p.grad(), part_of(gradients[name].grad(), layouts.at(name)), 1e-9,
                               1e-11),
                  "{} of rank {} of {}", name, g.rank(), ranks);
          });
  }
}

TEST(models_parallel_gpt, with_ddp_over_another_axis_gradients_and_norm_are_those_of_one_process) {
  const at::Tensor ids = at::arange(28, at::kLong).mul(5).remainder(29).view({4, 7});
  const at::Tensor target = at::arange(28, at::kLong).mul(3).add(1).remainder(29).view({4, 7});
  std::map<std::string, at::Tensor> expected;
  double norm = 0;
  const auto backward = [&](ParallelGpt& gpt, int64_t first, int64_t count) {
    std::vector<int64_t> samples;
    for (int64_t i = first; i < first + count; ++i) samples.push_back(100 + i);
    const RandomScope scope({3, 5, samples});
    const at::Tensor logits = gpt.forward(ids.narrow(0, first, count));
    gpt.loss_sum(logits, target.narrow(0, first, count)).div(7 * count).backward();
  };
  run_threads(1, [&](Group g) {
    const TensorParallel tp(g);
    ParallelGpt gpt(tp, small(true), kSeed);
    gpt.to(at::kDouble);
    backward(gpt, 0, 4);
    norm = clip_grad_norm(gpt, tp, 0.3);
    for (const auto& [name, p] : named_parameters(gpt)) expected[name] = p.grad();
  });
  for (const bool sequence : {false, true})
    run_threads(4, [&](Group world) {
      const DeviceMesh mesh(world, parallel_axes({.dp_shard = 2, .tp = 2}));
      const Group dp = mesh.group("dp");
      const TensorParallel tp(mesh.group("tp"), {.sequence_parallel = sequence});
      ParallelGpt gpt(tp, small(true), kSeed);
      gpt.to(at::kDouble);
      const DistributedDataParallel ddp(gpt, dp);
      backward(gpt, 2 * dp.rank(), 2);
      add_shared_gradients(gpt, tp);
      const double own = clip_grad_norm(gpt, tp, 0.3);
      trireme::check<Error>(std::abs(own - norm) < 1e-10, "a norm of {} and {}", own, norm);
      const auto layouts = layouts_of(gpt);
      for (const auto& [name, p] : named_parameters(gpt))
        trireme::check<Error>(
            at::allclose(p.grad(), part_of(expected.at(name), layouts.at(name)), 1e-9, 1e-12),
            "{} of rank {}", name, world.rank());
    });
}

namespace {

/// A network of a loop of one's own: blocks, each a unit if there is somebody who shards them, and
/// an embedding that is the head too.
struct OwnNet : torch::nn::Module {
  explicit OwnNet(const TensorParallel& tp, FullySharded* sharded = nullptr) : tp(tp) {
    wte = register_module("wte", std::make_shared<VocabParallelEmbedding>(tp, kVocab, kWidth));
    wpe = register_module("wpe", std::make_shared<ParallelPositions>(tp, kTime, kWidth));
    ln_f = register_module("ln_f", std::make_shared<ParallelLayerNorm>(tp, kWidth));
    init_gpt(*this, kSeed, 2);
    to(at::kDouble);
    for (const std::string path : {"block0", "block1"}) {
      const auto block = register_module(
          path, std::make_shared<ParallelBlock>(
                    tp, ParallelBlockOptions{.width = kWidth, .heads = 4, .dropout = 0.2}));
      init_gpt(*block, kSeed, 2, path + ".");
      block->to(at::kDouble);
      blocks.push_back(block);
      if (sharded) units.push_back(fully_shard(block, *sharded, path));
    }
    name_dropouts(*this);
  }
  at::Tensor forward(const at::Tensor& ids) {
    at::Tensor x = wpe->forward(wte->forward(ids), kTime);
    for (size_t i = 0; i < blocks.size(); ++i)
      x = units.empty() ? blocks[i]->forward(x, kTime) : units[i].forward(x, kTime);
    return wte->logits(ln_f->forward(x), kTime);
  }
  at::Tensor loss(const at::Tensor& logits, const at::Tensor& target) const {
    return vocab_parallel_cross_entropy(logits, target, kVocab, tp);
  }
  static constexpr int64_t kVocab = 29, kWidth = 24, kTime = 7;
  TensorParallel tp;
  std::shared_ptr<VocabParallelEmbedding> wte;
  std::shared_ptr<ParallelPositions> wpe;
  std::vector<std::shared_ptr<ParallelBlock>> blocks;
  std::vector<FullyShardedModule<ParallelBlock>> units;
  std::shared_ptr<ParallelLayerNorm> ln_f;
};

/// Adds the parts of shared gradients as they come: where ZeRO shards them, they are nowhere whole
/// when backward returns.
void add_shared_gradients_in_hooks(torch::nn::Module& module, const TensorParallel& tp) {
  const auto layouts = layouts_of(module);
  for (const auto& [name, p] : named_parameters(module))
    if (layouts.at(name).on(tp.axis()) == OnAxis::sum)
      p.register_hook([group = tp.group()](const at::Tensor& part) {
        const at::Tensor sum = part.clone(at::MemoryFormat::Contiguous);
        Group(group).all_reduce(sum).wait();
        return sum;
      });
}

using RunNet = std::function<at::Tensor(const at::Tensor& ids)>;

/// Three steps on `count` of four rows from `first` on, by any optimizer.
template <class Optimizer>
void train_own(OwnNet& net, const RunNet& run, Optimizer& optimizer, int64_t first, int64_t count) {
  const at::Tensor ids = at::arange(28, at::kLong).mul(5).remainder(29).view({4, 7});
  const at::Tensor target = at::arange(28, at::kLong).mul(3).add(1).remainder(29).view({4, 7});
  std::vector<int64_t> samples;
  for (int64_t i = first; i < first + count; ++i) samples.push_back(100 + i);
  for (int64_t step = 0; step < 3; ++step) {
    const RandomScope scope({3, step, samples});
    optimizer.zero_grad();
    net.loss(run(ids.narrow(0, first, count)), target.narrow(0, first, count)).backward();
    optimizer.step();
  }
}

torch::optim::SGDOptions momentum() { return torch::optim::SGDOptions(0.3).momentum(0.9); }

std::map<std::string, at::Tensor> own_weights_of_one_process() {
  std::map<std::string, at::Tensor> weights;
  run_threads(1, [&](Group g) {
    OwnNet net{TensorParallel(g)};
    const at::Tensor before = net.ln_f->weight.detach().clone();
    torch::optim::SGD optimizer(net.parameters(), momentum());
    train_own(
        net, [&](const at::Tensor& ids) { return net.forward(ids); }, optimizer, 0, 4);
    EXPECT_GT(net.ln_f->weight.sub(before).norm().item<double>(), 1e-3) << "it trains";
    for (const auto& [name, p] : named_parameters(net)) weights[name] = p.detach();
  });
  return weights;
}

void expect_parts(const OwnNet& net, const std::map<std::string, at::Tensor>& expected) {
  const auto layouts = layouts_of(net);
  for (const auto& [name, p] : named_parameters(net))
    trireme::check<Error>(
        at::allclose(p, part_of(expected.at(name), layouts.at(name)), 1e-10, 1e-13), "{}", name);
}

/// body(dp, tp) on 2 replicas × 2 parts, without and with divided positions.
void on_two_axes(const std::function<void(Group, const TensorParallel&)>& body) {
  for (const bool sequence : {false, true})
    run_threads(4, [&](Group world) {
      const DeviceMesh mesh(world, parallel_axes({.dp_shard = 2, .tp = 2}));
      mesh.make_groups();
      body(mesh.group("dp_shard"),
           TensorParallel(mesh.group("tp"), {.sequence_parallel = sequence}));
    });
}

}  // namespace

TEST(models_parallel_gpt, with_zero_1_and_2_over_another_axis_weights_are_those_of_one_process) {
  const auto expected = own_weights_of_one_process();
  for (const ZeroStage stage : {ZeroStage::optimizer, ZeroStage::gradients})
    on_two_axes([&](Group dp, const TensorParallel& tp) {
      OwnNet net(tp);
      add_shared_gradients_in_hooks(net, tp);
      ShardedDataParallel zero(net, dp, {.stage = stage, .bucket_bytes = 4096});
      ShardedOptimizer<torch::optim::SGD> optimizer(zero.sharded(), momentum());
      train_own(
          net, [&](const at::Tensor& ids) { return net.forward(ids); }, optimizer, 2 * dp.rank(),
          2);
      expect_parts(net, expected);
    });
}

TEST(models_parallel_gpt, with_blocks_that_are_units_of_zero_3_weights_are_those_of_one_process) {
  const auto expected = own_weights_of_one_process();
  on_two_axes([&](Group dp, const TensorParallel& tp) {
    FullySharded sharded{dp};
    OwnNet net(tp, &sharded);
    sharded.root(net);
    add_shared_gradients_in_hooks(net, tp);
    ShardedOptimizer<torch::optim::SGD> optimizer(sharded, momentum());
    train_own(
        net,
        [&](const at::Tensor& ids) {
          return sharded.run([&](const at::Tensor& x) { return net.forward(x); }, ids);
        },
        optimizer, 2 * dp.rank(), 2);
    const FullySharded::Gathered readable(sharded);
    expect_parts(net, expected);
  });
}

TEST(models_parallel_gpt, a_checkpoint_of_one_split_loads_into_any_other_and_into_the_gpt) {
  const PrivateFolder folder;
  auto options = small(false);
  options.kv_heads = 2;  // shared by ranks where there are 4
  const auto filled = [&](Group g, uint64_t seed) {
    return std::make_shared<ParallelGpt>(TensorParallel(g), options, seed);
  };
  for (const int from : {1, 2, 4})
    for (const int to : {1, 2, 4}) {
      const std::string path = folder / fmt::format("{}-{}", from, to);
      run_threads(from, [&](Group g) { save(path, 1, state_of(*filled(g, kSeed)), g); });
      run_threads(to, [&](Group g) {
        const auto loaded = filled(g, kSeed + 1), expected = filled(g, kSeed);
        load(path, state_of(*loaded), g);
        for (const auto& item : expected->named_parameters())
          trireme::check<Error>(loaded->named_parameters()[item.key()].equal(item.value()),
                                "{} from {} ranks to {}", item.key(), from, to);
      });
    }
  options.kv_heads = 0;
  const std::string path = folder / "whole";
  run_threads(3, [&](Group g) { save(path, 1, state_of(*filled(g, kSeed)), g); });
  Gpt loaded(options, kSeed + 1);
  const Gpt expected(options, kSeed);
  load(path, state_of(loaded));
  for (const auto& item : expected.named_parameters())
    EXPECT_TRUE(loaded.named_parameters()[item.key()].equal(item.value())) << item.key();
}

}  // namespace parallel_gpt_test
