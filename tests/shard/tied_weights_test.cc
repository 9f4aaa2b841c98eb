// SPDX-License-Identifier: Apache-2.0
// Tensors that a model registers under several names, under ZeRO. The reference is torch::optim on
// each tensor once, over the whole batch, in one process.
#include <gtest/gtest.h>
#include <torch/nn/utils/clip_grad.h>
#include <torch/torch.h>

#include "tests/grad/tied_net.h"
#include "tests/support/refusals.h"
#include "trireme/base/file.h"
#include "trireme/checkpoint/reader.h"
#include "trireme/checkpoint/sharded_writer.h"
#include "trireme/optim/optimizer.h"
#include "trireme/shard/fully_shard.h"
#include "trireme/shard/offload/offload_optimizer.h"
#include "trireme/shard/sharded_data_parallel.h"
#include "trireme/shard/sharded_optimizer.h"

namespace tied_weights_test {

using namespace trireme;
using namespace trireme::testing;

namespace {

constexpr int kSteps = 4;
constexpr int64_t kRows = 8;

struct Sgd {
  using Torch = torch::optim::SGD;
  static auto options() { return torch::optim::SGDOptions(0.05).momentum(0.9); }
  static constexpr const char* kName = "SGD";
};
// Adam alone would not tell a gradient that is twice too large.
struct AdamW {
  using Torch = torch::optim::AdamW;
  static auto options() { return torch::optim::AdamWOptions(0.01); }
  static constexpr const char* kName = "AdamW";
};

enum class Accumulate { no, with_no_sync };

/// A network that has a tied one, which may be a unit or a part of the root.
struct OuterImpl : torch::nn::Module {
  explicit OuterImpl(uint64_t seed) : net(tied_net(seed)) {
    register_module("net", net);
    gain = register_parameter("gain", torch::full({TiedNetImpl::kTokens}, 1.5, at::kDouble));
  }
  at::Tensor forward(const at::Tensor& x) {
    return (run_net ? run_net(x) : net->forward(x)) * gain;
  }
  TiedNet net;
  at::Tensor gain;
  std::function<at::Tensor(const at::Tensor&)> run_net;
};
TORCH_MODULE(Outer);

at::Tensor loss_of(const at::Tensor& y) { return y.pow(2).sum(1).mean(); }

/// Steps of `forward` over this rank's rows: all at once, or the first half inside of no_sync().
template <class Owner, class Optimizer>
void train(Owner& owner, Optimizer& optimizer, const Group& g, Accumulate how,
           const std::function<at::Tensor(const at::Tensor&)>& forward) {
  for (int step = 0; step < kSteps; ++step) {
    optimizer.zero_grad();
    const at::Tensor mine = rows_of(tokens(kRows, step), g);
    if (how == Accumulate::with_no_sync) {
      const int64_t half = mine.size(0) / 2;
      {
        auto guard = owner.no_sync();
        (loss_of(forward(mine.narrow(0, 0, half))) / 2).backward();
      }
      (loss_of(forward(mine.narrow(0, half, half))) / 2).backward();
    } else {
      loss_of(forward(mine)).backward();
    }
    optimizer.step();
  }
}

template <class Net, class Kind>
Net serial(Net net, Kind) {
  typename Kind::Torch optimizer(each_once(*net), Kind::options());
  for (int step = 0; step < kSteps; ++step) {
    optimizer.zero_grad();
    loss_of(net->forward(tokens(kRows, step))).backward();
    optimizer.step();
  }
  return net;
}

template <class Kind>
void stages_1_and_2(Kind kind) {
  TiedNet want = serial(tied_net(), kind);
  for (ZeroStage stage : {ZeroStage::optimizer, ZeroStage::gradients})
    for (bool share : {false, true})
      for (Accumulate how : {Accumulate::no, Accumulate::with_no_sync})
        for (int n : {2, 4})
          run_threads(n, [&](Group g) {
            TiedNet net = tied_net(static_cast<uint64_t>(g.rank()) + 1);  // rank 0's counts
            ShardedDataParallel zero(net, g,
                                     {.stage = stage, .bucket_bytes = 512, .share_weights = share});
            ShardedOptimizer<typename Kind::Torch> optimizer(zero.sharded(), Kind::options());
            train(zero, optimizer, g, how, [&](const at::Tensor& x) { return net->forward(x); });
            expect_tied_as(net, want, 1e-12,
                           fmt::format("{}, stage {}, shared {}: ", Kind::kName,
                                       static_cast<int>(stage), share));
          });
}

template <class Kind>
void stage_3(Kind kind) {
  Outer want = serial(Outer(1), kind);
  for (bool as_unit : {false, true})
    for (Accumulate how : {Accumulate::no, Accumulate::with_no_sync})
      for (int n : {2, 4})
        run_threads(n, [&](Group g) {
          Outer net(static_cast<uint64_t>(g.rank()) + 1);
          FullySharded sharded(g);
          FullyShardedModule<TiedNetImpl> unit;
          if (as_unit) {
            unit = fully_shard(net->net, sharded, "net");
            net->run_net = [&](const at::Tensor& x) { return unit.forward(x); };
          }
          sharded.root(*net);
          ShardedOptimizer<typename Kind::Torch> optimizer(sharded, Kind::options());
          train(sharded, optimizer, g, how, [&](const at::Tensor& x) {
            return sharded.run([&](const at::Tensor& in) { return net->forward(in); }, x);
          });
          FullySharded::Gathered whole(sharded);
          expect_tied_as(net->net, want->net, 1e-12, Kind::kName);
          expect(torch::allclose(net->gain, want->gain, 1e-12), "gain");
        });
}

std::vector<std::string> names_of(const NamedTensors& list) {
  std::vector<std::string> names;
  for (const auto& [name, t] : list) names.push_back(name);
  return names;
}

}  // namespace

TEST(shard_tied_weights, stages_1_and_2_and_shared_weights_train_as_over_the_whole_batch_with_sgd) {
  stages_1_and_2(Sgd());
}
TEST(shard_tied_weights,
     stages_1_and_2_and_shared_weights_train_as_over_the_whole_batch_with_adamw) {
  stages_1_and_2(AdamW());
}
TEST(shard_tied_weights, in_one_unit_or_in_the_root_train_as_over_the_whole_batch_with_sgd) {
  stage_3(Sgd());
}
TEST(shard_tied_weights, in_one_unit_or_in_the_root_train_as_over_the_whole_batch_with_adamw) {
  stage_3(AdamW());
}

TEST(shard_tied_weights, have_one_shard_under_the_first_name_and_count_once_in_the_norm) {
  TiedNet whole = tied_net();
  loss_of(whole->forward(tokens(kRows))).backward();
  const double want = torch::nn::utils::clip_grad_norm_(each_once(*whole), 0.1);
  run_threads(1, [&](Group g) {
    TiedNet net = tied_net();
    NamedTensors all;
    for (const auto& item : net->named_parameters()) all.emplace_back(item.key(), item.value());
    // As a list of every name, too.
    ShardedDataParallel zero(all, {{"scale", net->scale}, {"scale_again", net->scale}}, g);
    auto names = names_of(zero.sharded().shards());
    std::sort(names.begin(), names.end());
    expect(names == std::vector<std::string>{"a.bias", "a.weight", "b.bias", "b.weight",
                                             "first.bias", "first.weight", "head"},
           fmt::format("{}", fmt::join(names, " ")));
    expect(zero.sharded().tied() == TiedNames{{"emb.weight", "head"},
                                              {"again.weight", "first.weight"},
                                              {"again.bias", "first.bias"},
                                              {"scale_again", "scale"}},
           "other names");
    loss_of(net->forward(tokens(kRows))).backward();
    expect(std::abs(zero.sharded().clip_grad_norm_(0.1) / want - 1) < 1e-6, "norm");
    for (const auto& [name, shard] : zero.sharded().shards())
      expect(torch::allclose(shard.grad(), whole->named_parameters()[name].grad().view({-1})),
             name);
  });
}

TEST(shard_tied_weights, between_a_unit_and_another_or_the_root_are_refused_by_both_names) {
  auto said = what_ranks_throw(2, [](Group g) {
    Outer net(1);
    net->register_parameter("head", net->net->emb->weight);
    FullySharded sharded(g);
    sharded.unit("net", *net->net);
    sharded.root(*net);
  });
  for (const auto& s : said)
    EXPECT_TRUE(has(s, "'head' of the root is 'net.head' of unit 'net'") &&
                has(s, "leave both of its users to the root"))
        << s;
  said = what_ranks_throw(2, [](Group g) {
    TiedNet net = tied_net();
    FullySharded sharded(g);
    sharded.unit("first", *net->first);
    sharded.unit("again", *net->again);
  });
  for (const auto& s : said)
    EXPECT_TRUE(has(s, "'again.weight' of unit 'again' is 'first.weight' of unit 'first'")) << s;
}

TEST(shard_tied_weights, ranks_that_tie_differently_are_told_which_name) {
  auto check_said = [](const std::vector<std::string>& said) {
    for (const auto& s : said) EXPECT_TRUE(has(s, "Mismatch") && has(s, "also named")) << s;
  };
  check_said(what_ranks_throw(2, [](Group g) {
    TiedNet net = tied_net(1, g.rank() == 0);
    ShardedDataParallel zero(net, g);
  }));
  check_said(what_ranks_throw(2, [](Group g) {
    TiedNet net = tied_net(1, g.rank() == 0);
    FullySharded sharded(g);
    sharded.root(*net);
  }));
}

TEST(shard_tied_weights, tensors_that_only_share_memory_are_refused_by_both_names) {
  struct Views : torch::nn::Module {
    explicit Views(bool buffer) {
      a = register_module("a", torch::nn::Linear(4, 4));
      b = register_module("b", torch::nn::Linear(4, 4));
      if (buffer)
        b->register_buffer("row", a->weight.detach().select(0, 1));
      else
        b->weight.set_data(a->weight);
    }
    torch::nn::Linear a{nullptr}, b{nullptr};
  };
  for (bool buffer : {false, true}) {
    const std::string name = buffer ? "'b.row'" : "'b.weight'";
    for (bool share : {false, true})
      for (const auto& s : what_ranks_throw(2, [&](Group g) {
             Views net(buffer);
             ShardedDataParallel zero(net, g, {.share_weights = share});
           }))
        EXPECT_TRUE(has(s, name + " shares memory with 'a.weight'")) << s;
    // In one unit, and in two, of which the first has dropped its bytes.
    for (bool units : {false, true})
      for (const auto& s : what_ranks_throw(2, [&](Group g) {
             Views net(buffer);
             FullySharded sharded(g);
             if (units) sharded.unit("a", *net.a);
             if (units) sharded.unit("b", *net.b);
             sharded.root(net);
           }))
        EXPECT_TRUE(has(s, name + " shares memory with 'a.weight'")) << s;
  }
}

TEST(shard_tied_weights, a_checkpoint_has_them_once_and_they_stay_tied) {
  for (int stage : {2, 3}) {
    PrivateFolder folder;
    run_threads(2, [&](Group g) {
      auto with = [&](uint64_t seed, const std::function<void(TiedNet&, ShardedParameters&)>& f) {
        TiedNet net = tied_net(seed);
        if (stage == 2) {
          ShardedDataParallel zero(net, g);
          return f(net, zero.sharded());
        }
        FullySharded sharded(g);
        sharded.root(*net);
        f(net, sharded);
      };
      TiedNet want = tied_net(1);
      with(1, [&](TiedNet&, ShardedParameters& p) {
        save_sharded_step(folder.path(), 3, [&](StateVisitor& v) { p.state(v); }, g,
                          {"two ranks", 1});
      });
      with(2, [&](TiedNet& net, ShardedParameters& p) {
        load_step(folder.path(), [&](StateVisitor& v) { p.state(v); }, {.group = g});
        p.publish();
        if (stage == 2) return expect_tied_as(net, want, 0);
        FullySharded::Gathered whole(static_cast<FullySharded&>(p));
        expect_tied_as(net, want, 0);
      });
    });
  }
}

TEST(shard_tied_weights, an_optimizer_in_a_file_steps_them_once) {
  PrivateFolder folder;
  auto make = [](NamedTensors p) { return make_adamw(std::move(p), {}, {{"again", 0.0, 0.5}}); };
  auto list = [](bool named) {
    at::Tensor w = at::arange(3000, at::kFloat).sin().requires_grad_(),
               v = at::arange(2000, at::kFloat).cos().requires_grad_();
    NamedTensors all = {{"w", w}, {"v", v}};
    if (named) all.push_back({"again", w});
    return all;
  };
  NamedTensors twice = list(true), once = list(false);
  OffloadOptions options;
  options.file.folder = folder.path();
  options.sub_group_bytes = 1;
  auto away = offload_optimizer(twice, make, options);
  auto here = make_adamw(once, {}, {{"w", 0.0, 0.5}});
  EXPECT_EQ(away->usage().sub_groups, 2);
  for (int t = 0; t < 3; ++t) {
    for (auto* l : {&twice, &once})
      for (size_t i = 0; i < 2; ++i)
        (*l)[i].second.mutable_grad() = ((*l)[i].second.detach() + t).sin();
    away->step(0.01);
    here->step(0.01);
  }
  for (size_t i = 0; i < 2; ++i) EXPECT_TRUE(twice[i].second.equal(once[i].second)) << i;
}

}  // namespace tied_weights_test
