// SPDX-License-Identifier: Apache-2.0
// A loop of one's own that is saved under DDP or any stage of ZeRO, and goes on under any of them.
#include <gtest/gtest.h>

#include <memory>
#include <optional>

#include "tests/shard/sharded_tower.h"
#include "tests/support/refusals.h"
#include "trireme/base/file.h"
#include "trireme/checkpoint/own_state.h"
#include "trireme/grad/ddp.h"
#include "trireme/optim/torch_optimizer_state.h"
#include "trireme/shard/sharded_data_parallel.h"

namespace own_checkpoint_test {

using namespace trireme;
using namespace trireme::testing;
using torch::optim::Adagrad;
using torch::optim::AdagradOptions;
using torch::optim::Adam;
using torch::optim::AdamOptions;
using torch::optim::AdamW;
using torch::optim::AdamWOptions;
using torch::optim::RMSprop;
using torch::optim::RMSpropOptions;
using torch::optim::SGD;
using torch::optim::SGDOptions;

namespace {

/// What people write around a Tower; stage 0 is DDP.
template <class TorchOptimizer>
class Loop {
 public:
  template <class Options>
  Loop(int stage, uint64_t seed, const Group& g, const Options& options) : group_(g) {
    if (stage == 3) {
      units_ = std::make_unique<ShardedTower>(seed, g);
      sharded_ = &units_->sharded;
      module_ = units_->tower;
    } else {
      module_ = std::make_shared<Tower>(seed);
      if (stage == 0) {
        ddp_.emplace(*module_, g);
        plain_.emplace(module_->parameters(), options);
        return;
      }
      zero_.emplace(*module_, g, ShardedDataParallelOptions{.stage = ZeroStage(stage)});
      sharded_ = &zero_->sharded();
    }
    optimizer_.emplace(*sharded_, options);
  }

  void step(int number) {
    const at::Tensor x = part(rows_of_step(number), group_);
    plain_ ? plain_->zero_grad() : optimizer_->zero_grad();
    const at::Tensor y = units_ ? units_->forward(x) : module_->forward(x);
    y.pow(2).sum(1).mean().backward();
    plain_ ? static_cast<void>(plain_->step()) : optimizer_->step();
  }

  StateWalk state() {
    if (plain_) return all_of({state_of(*module_), state_of(*plain_, *module_)});
    if (units_) return all_of({state_of(units_->sharded), state_of(*optimizer_)});
    return all_of({state_of(*module_), state_of(*optimizer_)});
  }

  /// With weights as the ranks of ZeRO hold them, which are published when they are loaded.
  StateWalk sharded_state() { return all_of({state_of(*sharded_), state_of(*optimizer_)}); }

  /// By name; every rank calls it.
  std::map<std::string, at::Tensor> weights() {
    std::optional<FullySharded::Gathered> whole;
    if (units_) whole.emplace(units_->sharded);
    std::map<std::string, at::Tensor> all;
    for (const auto& p : module_->named_parameters()) all[p.key()] = p.value().detach().clone();
    return all;
  }

 private:
  Group group_;
  std::shared_ptr<Tower> module_;
  std::unique_ptr<ShardedTower> units_;
  std::optional<DistributedDataParallel> ddp_;
  std::optional<ShardedDataParallel> zero_;
  ShardedParameters* sharded_ = nullptr;
  std::optional<TorchOptimizer> plain_;
  std::optional<ShardedOptimizer<TorchOptimizer>> optimizer_;
};

void expect_near(const std::map<std::string, at::Tensor>& got,
                 const std::map<std::string, at::Tensor>& want, double tolerance,
                 const std::string& what) {
  for (const auto& [name, w] : want) {
    expect(w.isfinite().all().item<bool>(), what + ": " + name + " is to be finite");
    const double off = (got.at(name) - w).abs().max().item<double>();
    expect(off <= tolerance, what + ": " + name + " differs by " + std::to_string(off));
  }
}

template <class TorchOptimizer, class Options>
void expect_same_bits_when_resumed(const Options& options) {
  for (int stage = 0; stage <= 3; ++stage)
    for (const int ranks : {1, 2, 4})
      for (const int saved_at : {0, 2}) {
        PrivateFolder folder;
        const std::string what =
            fmt::format("stage {} on {} ranks, saved after {} steps", stage, ranks, saved_at);
        run_threads(ranks, [&](Group g) {
          Loop<TorchOptimizer> plain(stage, 1, g, options), stopped(stage, 1, g, options),
              resumed(stage, 2, g, options);
          for (int step = 0; step < 4; ++step) plain.step(step);
          for (int step = 0; step < saved_at; ++step) stopped.step(step);
          save(folder.path(), saved_at, stopped.state(), g);
          resumed.step(9);  // it has state of its own, which goes
          load(folder.path(), resumed.state(), g);
          for (int step = saved_at; step < 4; ++step) resumed.step(step);
          expect_near(resumed.weights(), plain.weights(), 0, what);
        });
      }
}

// One run that moves on after each step: every layout loads what the one before it has saved.
template <class TorchOptimizer, class Options>
void expect_to_go_on_anywhere(const std::string& name, const Options& options) {
  struct Layout {
    int stage, ranks;
  };
  const std::vector<Layout> layouts = {{0, 1}, {3, 2}, {1, 4}, {2, 1}, {3, 4},
                                       {0, 2}, {2, 2}, {3, 1}, {1, 2}, {0, 4},
                                       {2, 4}, {1, 1}, {3, 2}, {2, 4}, {0, 1}};
  PrivateFolder folder;
  std::map<std::string, at::Tensor> want;
  run_threads(1, [&](Group g) {
    Loop<TorchOptimizer> whole(0, 1, g, options);
    for (int step = 0; step < static_cast<int>(layouts.size()); ++step) whole.step(step);
    want = whole.weights();
  });
  int step = 0;
  for (const Layout& l : layouts) {
    run_threads(l.ranks, [&](Group g) {
      Loop<TorchOptimizer> loop(l.stage, step == 0 ? 1 : 2, g, options);
      if (step > 0) load(folder.path(), loop.state(), g);
      loop.step(step);
      save(folder.path(), step + 1, loop.state(), g);
      if (step + 1 < static_cast<int>(layouts.size())) return;
      expect_near(loop.weights(), want, 1e-9, "at the end of " + name);
    });
    ++step;
  }
}

/// Statistics in a buffer, and a frozen layer.
struct NormedImpl : torch::nn::Module {
  explicit NormedImpl(double mark) {
    frozen = register_module("frozen", torch::nn::Linear(9, 40));
    norm = register_module("norm", torch::nn::BatchNorm1d(40));
    out = register_module("out", torch::nn::Linear(40, 3));
    torch::NoGradGuard no_grad;
    for (auto& p : parameters()) p.copy_((torch::arange(p.numel()).view(p.sizes()) * mark).sin());
    to(torch::kDouble);
    for (auto& p : frozen->parameters()) p.set_requires_grad(false);
  }
  at::Tensor forward(const at::Tensor& x) { return out(norm(frozen(x))); }
  torch::nn::Linear frozen{nullptr}, out{nullptr};
  torch::nn::BatchNorm1d norm{nullptr};
};

}  // namespace

TEST(shard_own_checkpoint, a_resumed_loop_has_the_bits_of_one_that_was_not_interrupted) {
  expect_same_bits_when_resumed<AdamW>(AdamWOptions(0.01).amsgrad(true));
  expect_same_bits_when_resumed<SGD>(SGDOptions(0.05).momentum(0.9).dampening(0.3));
}

TEST(shard_own_checkpoint, any_stage_on_any_ranks_goes_on_from_any_other) {
  expect_to_go_on_anywhere<AdamW>("AdamW", AdamWOptions(0.01));
  expect_to_go_on_anywhere<SGD>("SGD", SGDOptions(1e-3).momentum(0.9).nesterov(true));
  expect_to_go_on_anywhere<RMSprop>("RMSprop", RMSpropOptions(1e-3).centered(true).momentum(0.5));
  expect_to_go_on_anywhere<Adagrad>("Adagrad", AdagradOptions(0.05).initial_accumulator_value(0.1));
}

TEST(shard_own_checkpoint, another_optimizer_is_refused_by_name_on_every_rank) {
  PrivateFolder folder;
  run_threads(2, [&](Group g) {
    Loop<AdamW> saved(2, 1, g, AdamWOptions(0.01));
    saved.step(0);
    save(folder.path(), 1, saved.state(), g);
    Loop<Adam> other(3, 1, g, AdamOptions(0.01));
    const std::string text = refusal([&] { load(folder.path(), other.state(), g); });
    expect(has(text, "'optim.type' is 'AdamW' there and 'Adam' here"), text);
  });
}

TEST(shard_own_checkpoint, a_module_whose_parameters_are_sharded_is_refused_by_name) {
  PrivateFolder folder;
  run_threads(2, [&](Group g) {
    ShardedTower tower(1, g);
    const std::string text = refusal([&] { save(folder.path(), 1, state_of(*tower.tower), g); });
    expect(has(text, "has been freed because a FullySharded") && has(text, "state_of(sharded)"),
           text);
  });
}

TEST(shard_own_checkpoint, frozen_parameters_and_statistics_of_stage_3_load_without_it) {
  PrivateFolder folder;
  at::Tensor mean;
  run_threads(2, [&](Group g) {
    auto net = std::make_shared<NormedImpl>(0.7);
    FullySharded sharded(g);
    sharded.root(*net);
    ShardedOptimizer<AdamW> optimizer(sharded, AdamWOptions(0.01));
    sharded.run([&](const at::Tensor& x) { return net->forward(x); }, part(rows_of_step(0), g))
        .sum()
        .backward();
    optimizer.step();
    save(folder.path(), 1, all_of({state_of(sharded), state_of(optimizer)}), g);
    if (g.rank() == 0) mean = net->norm->running_mean.clone();
  });
  NormedImpl loaded(0.1);
  const NormedImpl wanted(0.7);
  AdamW optimizer(loaded.parameters(), AdamWOptions(0.01));
  load(folder.path(), all_of({state_of(static_cast<torch::nn::Module&>(loaded)),
                              state_of(optimizer, static_cast<torch::nn::Module&>(loaded))}));
  EXPECT_TRUE(torch::equal(loaded.frozen->weight, wanted.frozen->weight));
  EXPECT_TRUE(torch::equal(loaded.norm->running_mean, mean));
  EXPECT_FALSE(torch::equal(loaded.out->weight, wanted.out->weight)) << "it was trained";
}

TEST(shard_own_checkpoint, an_optimizer_made_from_the_shards_by_hand_is_saved_alike) {
  PrivateFolder folder;
  run_threads(2, [&](Group g) {
    ShardedTower by_hand(1, g);
    AdamW optimizer(by_hand.sharded.parameters(), AdamWOptions(0.01));
    by_hand.forward(part(rows_of_step(0), g)).sum().backward();
    optimizer.step();
    by_hand.sharded.publish();
    save(folder.path(), 1,
         all_of({state_of(by_hand.sharded), state_of(optimizer, by_hand.sharded)}), g);
    Loop<AdamW> other(0, 2, g, AdamWOptions(0.5));
    load(folder.path(), other.state(), g);
    FullySharded::Gathered whole(by_hand.sharded);
    const auto weights = other.weights();
    for (const auto& p : by_hand.tower->named_parameters())
      expect(torch::equal(p.value(), weights.at(p.key())), p.key());
  });
}

// One rank's files are damaged. What it loads it publishes to the others in the same walk: they
// would wait for a rank that reports its error.
TEST(shard_own_checkpoint, a_damaged_file_of_one_rank_is_corrupt_on_all_and_the_older_step_loads) {
  for (int stage = 1; stage <= 3; ++stage)
    for (const bool check_first : {false, true}) {
      PrivateFolder folder;
      run_threads(2, [&](Group g) {
        Loop<Adam> loop(stage, 1, g, AdamOptions(1e-2)), other(stage, 2, g, AdamOptions(1e-2));
        loop.step(0);
        save(folder.path(), 1, loop.sharded_state(), g, {.keep = 2});
        const auto weights = loop.weights();
        loop.step(1);
        save(folder.path(), 2, loop.sharded_state(), g, {.keep = 2});
        const std::string damaged = folder / "step-00000002/model-rank00001.safetensors";
        if (g.rank() == 0) {
          std::string bytes = read_file(damaged);
          bytes.back() = static_cast<char>(bytes.back() ^ 1);
          write_file_atomic(damaged, bytes);
        }
        g.barrier();
        const auto load_newest = [&] {
          load(folder.path(), other.sharded_state(), g, {.check_first = check_first});
        };
        std::string text;
        try {
          load_newest();
        } catch (const Corrupt& e) {
          text = e.what();
        }
        expect(has(text, damaged) && has(text, folder / "step-00000001"),
               fmt::format("stage {}, rank {}: {}", stage, g.rank(), text));
        load(folder / "step-00000001", other.sharded_state(), g);
        expect_near(other.weights(), weights, 0, fmt::format("stage {}", stage));
      });
    }
}

}  // namespace own_checkpoint_test
