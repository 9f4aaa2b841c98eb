// SPDX-License-Identifier: Apache-2.0
// A loop of one's own that has ZeRO over some ranks and layers divided over others.
#include "trireme/shard/divided_shards.h"

#include <gtest/gtest.h>
#include <torch/optim/adamw.h>

#include <functional>
#include <memory>
#include <optional>

#include "tests/support/ranks.h"
#include "tests/support/refusals.h"
#include "trireme/base/check.h"
#include "trireme/base/file.h"
#include "trireme/checkpoint/own_state.h"
#include "trireme/comm/start/run.h"
#include "trireme/layers/tensor_parallel/block.h"
#include "trireme/layers/tensor_parallel/cross_entropy.h"
#include "trireme/layers/tensor_parallel/embedding.h"
#include "trireme/layers/tensor_parallel/gradients.h"
#include "trireme/layers/tensor_parallel/linear.h"
#include "trireme/mesh/mesh.h"
#include "trireme/models/init.h"
#include "trireme/optim/optimizer.h"
#include "trireme/optim/torch_optimizer_state.h"
#include "trireme/shard/fully_sharded.h"
#include "trireme/shard/sharded_data_parallel.h"
#include "trireme/shard/sharded_optimizer.h"
#include "trireme/tensor/layout_state.h"
#include "trireme/tensor/module_state.h"

namespace divided_shards_test {

using namespace trireme;
using namespace trireme::testing;
using torch::optim::AdamW;
using torch::optim::AdamWOptions;

namespace {

// The vocabulary divides unevenly, so ranks of an axis have shards at different places.
constexpr int64_t kVocab = 13, kWidth = 16, kHeads = 4, kTime = 6, kRows = 8;

struct Net : torch::nn::Module {
  Net(const TensorParallel& tp, uint64_t seed, int64_t kv_heads) : tp(tp) {
    wte = register_module("wte", std::make_shared<VocabParallelEmbedding>(tp, kVocab, kWidth));
    wpe = register_module("wpe", std::make_shared<ParallelPositions>(tp, kTime, kWidth));
    block = register_module(
        "block",
        std::make_shared<ParallelBlock>(
            tp, ParallelBlockOptions{.width = kWidth, .heads = kHeads, .kv_heads = kv_heads}));
    ln = register_module("ln", std::make_shared<ParallelLayerNorm>(tp, kWidth));
    head = register_module("head", std::make_shared<ColumnParallelLinear>(tp, kWidth, kVocab));
    init_gpt(*this, seed, 1);
    to(at::kDouble);
  }
  at::Tensor forward(const at::Tensor& ids) {
    at::Tensor x = wpe->forward(wte->forward(ids), kTime);
    x = unit ? unit->run([&](const at::Tensor& in) { return block->forward(in, kTime); }, x)
             : block->forward(x, kTime);
    return head->forward(ln->forward(x), kTime);
  }
  TensorParallel tp;
  std::shared_ptr<VocabParallelEmbedding> wte;
  std::shared_ptr<ParallelPositions> wpe;
  std::shared_ptr<ParallelBlock> block;
  std::shared_ptr<ParallelLayerNorm> ln;
  std::shared_ptr<ColumnParallelLinear> head;
  FullySharded::Unit* unit = nullptr;
};

struct Layout {
  int stage = 0, dp = 1, tp = 1;
  bool sequence = false;
  int64_t kv_heads = kHeads;
  int ranks() const { return dp * tp; }
  std::string text() const {
    return fmt::format("stage {}, dp {}, tp {}{}, {} key/value heads", stage, dp, tp,
                       sequence ? " with sequence_parallel" : "", kv_heads);
  }
};

/// What people write around such a network. Every rank of the group makes one.
class Loop {
 public:
  Loop(Group world, const Layout& layout, uint64_t seed)
      : mesh_(world, parallel_axes({.dp_shard = layout.dp, .tp = layout.tp})), layout_(layout) {
    mesh_.make_groups();
    dp_ = mesh_.group("dp_shard");
    tp_.emplace(mesh_.group("tp"), TensorParallel::Options{.sequence_parallel = layout.sequence});
    net = std::make_shared<Net>(*tp_, seed, layout.kv_heads);
    const auto options = AdamWOptions(1e-2).weight_decay(0.1);
    if (layout.stage == 0) {
      plain_.emplace(net->parameters(), options);
      return;
    }
    if (layout.stage == 3) {
      units_ = std::make_unique<FullySharded>(dp_);
      net->unit = &units_->unit("block", *net->block);
      units_->root(*net);
      sharded = units_.get();
    } else {
      zero_.emplace(*net, dp_, ShardedDataParallelOptions{.stage = ZeroStage(layout.stage)});
      sharded = &zero_->sharded();
    }
    optimizer_.emplace(*sharded, options);
  }

  void backward(int number) {
    const auto g = at::make_generator<at::CPUGeneratorImpl>(static_cast<uint64_t>(number) + 1);
    const at::Tensor all = at::randint(0, kVocab, {kRows, kTime + 1}, g, at::kLong);
    const int64_t n = kRows / layout_.dp;
    const at::Tensor rows = all.narrow(0, dp_.rank() * n, n);
    const at::Tensor ids = rows.narrow(1, 0, kTime);
    const at::Tensor logits =
        units_ ? units_->run([&](const at::Tensor& x) { return net->forward(x); }, ids)
               : net->forward(ids);
    vocab_parallel_cross_entropy(logits, rows.narrow(1, 1, kTime), kVocab, *tp_).backward();
    if (!sharded)
      for (auto& p : net->parameters()) dp_.all_reduce(p.mutable_grad(), ReduceOp::avg).wait();
  }

  /// Returns the norm of the gradients.
  double step(int number) {
    plain_ ? plain_->zero_grad() : optimizer_->zero_grad();
    backward(number);
    double norm = 0;
    if (sharded) {
      add_shared_gradients(*sharded, tp_->group());
      norm = clip_grad_norm(*sharded, tp_->group(), 0.5);
    } else {
      add_shared_gradients(*net, *tp_);
      norm = clip_grad_norm(*net, *tp_, 0.5);
    }
    plain_ ? static_cast<void>(plain_->step()) : optimizer_->step();
    return norm;
  }

  StateWalk state() {
    if (plain_) return all_of({state_of(*net), state_of(*plain_, *net)});
    if (units_) return all_of({state_of(*units_), state_of(*optimizer_)});
    return all_of({state_of(*net), state_of(*optimizer_)});
  }

  /// This rank's parts, by name.
  std::map<std::string, at::Tensor> weights() {
    std::optional<FullySharded::Gathered> whole;
    if (units_) whole.emplace(*units_);
    std::map<std::string, at::Tensor> all;
    for (const auto& [name, p] : named_parameters(*net)) all[name] = p.detach().clone();
    return all;
  }
  const TensorParallel& tp() const { return *tp_; }

  std::shared_ptr<Net> net;
  ShardedParameters* sharded = nullptr;

 private:
  DeviceMesh mesh_;
  Layout layout_;
  Group dp_;
  std::optional<TensorParallel> tp_;
  std::unique_ptr<FullySharded> units_;
  std::optional<ShardedDataParallel> zero_;
  std::optional<AdamW> plain_;
  std::optional<ShardedOptimizer<AdamW>> optimizer_;
};

void expect(bool ok, const std::string& what) { trireme::check<Error>(ok, "{}", what); }

constexpr int kSteps = 4, kSavedAt = 2;

struct Calm {
  std::vector<double> norms;
  std::map<std::string, at::Tensor> weights;
};

/// One process, undivided, over the whole batch.
Calm alone(int64_t kv_heads) {
  Calm calm;
  run_threads(1, [&](Group g) {
    Loop loop(g, {.kv_heads = kv_heads}, 1);
    for (int step = 0; step < kSteps; ++step) calm.norms.push_back(loop.step(step));
    calm.weights = loop.weights();
  });
  return calm;
}

void expect_near(Loop& loop, const Calm& calm, const std::string& what) {
  const auto layouts = layouts_of(*loop.net);
  for (const auto& [name, w] : loop.weights()) {
    const at::Tensor want = part_of(calm.weights.at(name), layouts.at(name));
    const double off = (w - want).abs().max().item<double>();
    expect(off < 1e-10, fmt::format("{}: {} differs by {}", what, name, off));
  }
}

std::vector<Layout> layouts() {
  std::vector<Layout> all;
  for (const int stage : {0, 1, 2, 3})
    for (const bool sequence : {false, true})
      for (const auto& [dp, tp] : {std::pair(2, 2), std::pair(1, 2), std::pair(2, 1)})
        all.push_back({stage, dp, tp, sequence});
  all.push_back({2, 1, 4, true, 2});  // ranks that share key/value heads
  all.push_back({3, 2, 4, false, 2});
  return all;
}

}  // namespace

TEST(shard_divided_shards, clipped_steps_are_those_of_one_process_over_the_whole_batch) {
  const Calm calm = alone(kHeads), shared_heads = alone(2);
  for (const Layout& layout : layouts()) {
    const Calm& want = layout.kv_heads == kHeads ? calm : shared_heads;
    run_threads(layout.ranks(), [&](Group g) {
      Loop loop(g, layout, 1);
      for (int step = 0; step < kSteps; ++step) {
        const double norm = loop.step(step), of_one = want.norms[static_cast<size_t>(step)];
        expect(std::abs(norm - of_one) < 1e-9 * of_one,
               fmt::format("{}: the norm of step {} is {}, not {}", layout.text(), step, norm,
                           of_one));
        expect(norm > 0.5, "clipping is to do something");
      }
      expect_near(loop, want, layout.text());
    });
  }
}

TEST(shard_divided_shards, each_layout_goes_on_from_what_another_has_saved) {
  const Calm calm = alone(kHeads);
  const std::vector<Layout> all = {{0, 1, 1},       {0, 2, 2, true}, {1, 2, 2, true},
                                   {2, 2, 2, true}, {3, 2, 2},       {2, 1, 2, true}};
  for (const Layout& from : all) {
    PrivateFolder folder;
    run_threads(from.ranks(), [&](Group g) {
      Loop loop(g, from, 1);
      for (int step = 0; step < kSavedAt; ++step) loop.step(step);
      save(folder.path(), kSavedAt, loop.state(), g);
    });
    for (const Layout& to : all)
      run_threads(to.ranks(), [&](Group g) {
        Loop loop(g, to, 2);
        loop.step(9);  // it has state of its own, which goes
        load(folder.path(), loop.state(), g);
        for (int step = kSavedAt; step < kSteps; ++step) loop.step(step);
        expect_near(loop, calm, from.text() + " → " + to.text());
      });
  }
}

TEST(shard_divided_shards, states_of_our_own_optimizers_are_saved_as_parts_of_the_whole) {
  const std::vector<Layout> all = {{0, 1, 1}, {0, 1, 2}, {0, 2, 2, true}};
  const auto train = [](Loop& loop, Optimizer& adamw, int from, int to) {
    for (int step = from; step < to; ++step) {
      adamw.zero_grad();
      loop.backward(step);
      add_shared_gradients(*loop.net, loop.tp());
      adamw.step(1e-2);
    }
  };
  const auto make = [](Loop& loop) {
    return make_adamw(named_parameters(*loop.net), {.weight_decay = 0.1});
  };
  Calm calm;
  run_threads(1, [&](Group g) {
    Loop loop(g, all[0], 1);
    train(loop, *make(loop), 0, kSteps);
    calm.weights = loop.weights();
  });
  for (const Layout& from : all) {
    PrivateFolder folder;
    const auto state = [](Loop& loop, Optimizer& adamw) {
      return all_of({state_of(*loop.net), with_layouts(state_of(adamw), *loop.net)});
    };
    run_threads(from.ranks(), [&](Group g) {
      Loop loop(g, from, 1);
      const auto adamw = make(loop);
      train(loop, *adamw, 0, kSavedAt);
      save(folder.path(), kSavedAt, state(loop, *adamw), g);
    });
    for (const Layout& to : all)
      run_threads(to.ranks(), [&](Group g) {
        Loop loop(g, to, 2);
        const auto adamw = make(loop);
        load(folder.path(), state(loop, *adamw), g);
        train(loop, *adamw, kSavedAt, kSteps);
        expect_near(loop, calm, from.text() + " → " + to.text());
      });
  }
}

TEST(shard_divided_shards, what_would_be_wrong_in_silence_is_refused_on_all_ranks) {
  for (const int stage : {1, 2, 3})
    run_threads(4, [&](Group g) {
      Loop loop(g, {stage, 2, 2, true}, 1);
      loop.backward(0);
      const auto refused = [&](const std::function<void()>& act, const std::string& part) {
        const std::string what = outcome_of(act);
        expect(what.find(part) != std::string::npos, fmt::format("stage {}: {}", stage, what));
      };
      // The module's parameters have no gradients: the norm would be 0.
      refused([&] { clip_grad_norm(*loop.net, loop.tp(), 1.0); },
              "under ZeRO the shards have them: clip_grad_norm(sharded, tp.group(), max_norm)");
      // The shards have a part of the model.
      refused([&] { loop.sharded->clip_grad_norm_(1.0); },
              "clip_grad_norm_: this rank holds a part");
      refused([&] { loop.sharded->norm_parts(); }, "norm_parts: this rank holds a part of '");
      if (stage == 3)
        refused([&] { check_replicas(*loop.net, loop.tp()); },
                "call it while a FullySharded::Gathered lives");
    });
}

TEST(shard_divided_shards, a_list_of_tensors_says_nothing_of_its_division) {
  run_threads(2, [&](Group g) {
    DeviceMesh mesh(g, parallel_axes({.dp_shard = 1, .tp = 2}));
    mesh.make_groups();
    const TensorParallel tp(mesh.group("tp"));
    auto net = std::make_shared<Net>(tp, 1, kHeads);
    ShardedDataParallel zero(named_parameters(*net), {}, mesh.group("dp_shard"));
    vocab_parallel_cross_entropy(net->forward(at::zeros({2, kTime}, at::kLong)),
                                 at::zeros({2, kTime}, at::kLong), kVocab, tp)
        .backward();
    for (const std::function<void()>& act :
         {std::function<void()>([&] { clip_grad_norm(zero.sharded(), tp.group(), 1.0); }),
          std::function<void()>([&] { add_shared_gradients(zero.sharded(), tp.group()); })}) {
      const std::string what = outcome_of(act);
      expect(what.find("shard the module, not a list of tensors") != std::string::npos, what);
    }
  });
}

}  // namespace divided_shards_test
