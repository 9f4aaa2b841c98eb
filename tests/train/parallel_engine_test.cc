// SPDX-License-Identifier: Apache-2.0
// initialize() of a module whose layers are divided over ranks (parallelism.tp): the same training
// as on one rank that has all of them.
#include <fmt/ranges.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>

#include <mutex>

#include "tests/grad/small_net.h"
#include "tests/support/refusals.h"
#include "tests/train/run_folders.h"
#include "tests/train/wholes.h"
#include "trireme/comm/start/run.h"
#include "trireme/layers/dropout.h"
#include "trireme/layers/tensor_parallel/block.h"
#include "trireme/layers/tensor_parallel/regions.h"
#include "trireme/models/init.h"
#include "trireme/tensor/tied_tensors.h"
#include "trireme/train/engine.h"

namespace parallel_engine_test {

using namespace trireme;
using namespace trireme::testing;

namespace {

constexpr int64_t kIn = 6, kWidth = 20, kTime = 5, kBatch = 8;  // 5 positions on two ranks

/// A stock layer on whole positions, then divided ones.
struct NetImpl : torch::nn::Module {
  explicit NetImpl(const TensorParallel& tp, int64_t hidden = 0)
      : stem(register_module("stem", torch::nn::Linear(kIn, kWidth))),
        up(register_module("up", std::make_shared<ColumnParallelLinear>(tp, kWidth, 3 * kWidth))),
        down(register_module("down", std::make_shared<RowParallelLinear>(tp, 3 * kWidth, kWidth))),
        block(register_module(
            "block", std::make_shared<ParallelBlock>(
                         tp, ParallelBlockOptions{.width = kWidth, .heads = 4, .hidden = hidden}))),
        out(register_module("out", std::make_shared<ColumnParallelLinear>(tp, kWidth, 7))),
        tp_(tp) {}
  at::Tensor forward(const at::Tensor& x) {
    at::Tensor h = stem(x);
    if (tp_.sequence_parallel()) h = regions::scatter_to(h, tp_.group(), 1);
    h = down->forward(torch::relu(up->forward(h, kTime)));
    return regions::gather_from(out->forward(block->forward(h, kTime), kTime), tp_.group(), 2, 7);
  }
  torch::nn::Linear stem;
  std::shared_ptr<ColumnParallelLinear> up;
  std::shared_ptr<RowParallelLinear> down;
  std::shared_ptr<ParallelBlock> block;
  std::shared_ptr<ColumnParallelLinear> out;
  TensorParallel tp_;
};
TORCH_MODULE(Net);

Config config_of(const Sets& sets) {
  return Config::from_text("ds_config.json", R"({
    "train_batch_size": 8,
    "train_micro_batch_size_per_gpu": 2,
    "gradient_clipping": 0.3,
    "optimizer": {"type": "SGD", "params": {"lr": 0.1}}})",
                           sets);
}

Sets operator+(Sets a, const Sets& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

const Sets kTwo = {"parallelism.tp=2"}, kFour = {"parallelism.tp=4"},
           kSequence = {"parallelism.sequence_parallel=true"};
Sets zero(int stage) { return {"zero_optimization.stage=" + std::to_string(stage)}; }

at::Tensor samples_of(int64_t step) {
  return torch::arange(step, step + kBatch * kTime * kIn, torch::kFloat)
      .mul(0.37)
      .sin()
      .reshape({kBatch, kTime, kIn});
}

at::Tensor loss_of(const at::Tensor& y, const at::Tensor& x) {
  const at::Tensor weights = (x.sum(2).abs() * 3).round();  // of each position
  return ((y - x.mean(2, true)).square().mean(2) * weights).sum(1).mean();
}

Net made(const TensorParallel& tp, int64_t seed) {
  static std::mutex one_at_a_time;  // threads share LibTorch's generator
  std::lock_guard lock(one_at_a_time);
  torch::manual_seed(seed);
  Net net(tp);
  init_unset(*net, 42);
  return net;
}

void steps_of(Engine& engine, const DeviceMesh& mesh, int64_t until) {
  const int64_t ranks = mesh.size("dp"), each = kBatch / ranks;
  while (engine.global_steps() < until) {
    const at::Tensor x =
        samples_of(engine.global_steps()).narrow(0, mesh.coordinate("dp") * each, each);
    for (int64_t m = 0; m < engine.gradient_accumulation_steps(); ++m) {
      const at::Tensor part = x.narrow(0, 2 * m, 2);
      engine.backward(loss_of(engine.forward(part), part));
      engine.step();
    }
  }
}

struct Trained {
  NamedTensors weights;
  double loss = 0, norm = 0;
};

Trained train(int ranks, const Sets& sets, int64_t until, const std::string& load = "",
              const std::string& save = "") {
  Trained trained;
  Wholes wholes;
  const Config config = config_of(sets);
  run_threads(
      ranks,
      [&](Group g) {
        const DeviceMesh mesh = mesh_of(config, g);
        // Each rank draws other numbers for what all hold alike, and rank 0's are taken.
        Net net = made(tensor_parallel_of(config, mesh), 7 + g.rank());
        Engine engine = initialize(net, config, mesh);
        if (!load.empty()) engine.load_checkpoint(load);
        steps_of(engine, mesh, until);
        if (!save.empty()) engine.save_checkpoint(save);
        engine.gathered([&] { wholes.add(named_parameters(*net), layouts_of(*net)); });
        if (g.rank() == ranks - 1) {
          trained.loss = engine.loss();
          trained.norm = engine.get_global_grad_norm();
        }
      },
      std::chrono::seconds(90));
  trained.weights = wholes.all();
  return trained;
}

}  // namespace

TEST(train_parallel_engine, twenty_clipped_steps_are_those_of_one_rank) {
  const Trained one = train(1, {}, 20);
  EXPECT_GT(one.norm, 0.3) << "clipping bites";
  for (const auto& [ranks, sets] :
       std::vector<std::pair<int, Sets>>{{2, kTwo},
                                         {2, kTwo + kSequence},
                                         {4, kFour},
                                         {4, kTwo + zero(0)},
                                         {4, kTwo + zero(1)},
                                         {4, kTwo + zero(2)},
                                         {4, kTwo + zero(3)},
                                         {4, kTwo + kSequence + zero(2)},
                                         {8, kTwo + kSequence + zero(3)}}) {
    const std::string what = fmt::format("{} on {}", fmt::join(sets, " "), ranks);
    const Trained ran = train(ranks, sets, 20);
    EXPECT_LT(relative_distance(ran.weights, one.weights), 1e-5) << what;
    EXPECT_NEAR(ran.loss / one.loss, 1, 1e-4) << what;
    EXPECT_NEAR(ran.norm / one.norm, 1, 1e-4) << what;
  }
}

TEST(train_parallel_engine, a_step_of_one_layout_goes_on_under_any_other) {
  const PrivateFolder folder;
  train(4, kTwo + kSequence + zero(3), 5, "", folder / "a");
  train(1, {}, 5, "", folder / "b");
  const Trained calm = train(1, {}, 10);
  for (const auto& [ranks, sets] : std::vector<std::pair<int, Sets>>{
           {1, {}}, {2, kTwo}, {4, kFour}, {4, kTwo + zero(2)}, {2, zero(3)}})
    for (const char* step : {"a", "b"})
      EXPECT_LT(relative_distance(train(ranks, sets, 10, folder / step).weights, calm.weights),
                1e-5)
          << fmt::format("{} on {}", fmt::join(sets, " "), ranks);
}

TEST(train_parallel_engine, what_it_cannot_train_is_said_on_all_ranks) {
  const auto said = [](const Sets& sets, const std::function<void(const Config&, Group)>& start) {
    const Config config = config_of(sets);
    return what_ranks_throw(2, [&](Group g) { start(config, g); });
  };
  const auto expect = [](const std::vector<std::string>& texts, const std::string& part) {
    for (const std::string& text : texts) EXPECT_TRUE(has(text, part)) << text;
  };
  expect(
      said(kTwo, [](const Config& c,
                    Group g) { initialize(made(tensor_parallel_of(c, mesh_of(c, g)), 1), c, g); }),
      "parallelism.tp is 2, and initialize() was given a group: give it the mesh");
  expect(said(kTwo,
              [](const Config& c, Group g) {
                const DeviceMesh other(g, parallel_axes({.dp_shard = 2}));
                initialize(made(TensorParallel::alone(), 1), c, other);
              }),
         "initialize(): the mesh is ");
  expect(said(kTwo, [](const Config& c,
                       Group g) { initialize(torch::nn::Linear(4, 4), c, mesh_of(c, g)); }),
         "no parameter of the model is divided over ranks");
  expect(said(kTwo,
              [](const Config& c, Group g) {
                const DeviceMesh mesh = mesh_of(c, g);
                Net net(tensor_parallel_of(c, mesh), g.rank() == 1 ? 44 : 40);
                init_unset(*net, 42);
                initialize(net, c, mesh);
              }),
         "ranks 0 and 1, which hold parts of the same layers (parallelism.tp), made different "
         "ones: block.mlp.up.weight");
  expect(said({"parallelism.pp=2"},
              [](const Config& c, Group g) { initialize(made(TensorParallel::alone(), 1), c, g); }),
         "parallelism.pp is 2, and initialize() runs the whole of the module that you give it: "
         "write a ChainProgram");
  // Layers that were made with the ranks of another axis, or with ranks that do not exist.
  const Config two = config_of(kTwo);
  expect(what_ranks_throw(4,
                          [&](Group g) {
                            const DeviceMesh mesh = mesh_of(two, g);
                            initialize(made(TensorParallel(mesh.group("dp")), 1), two, mesh);
                          }),
         "some of them twice. Make its layer with the TensorParallel that");
  expect(said(kTwo,
              [](const Config& c, Group g) {
                initialize(made(imagined_tensor_parallel(c), 1), c, mesh_of(c, g));
              }),
         "some of them twice");
  // One of four, with which others share an axis: none of them waits.
  for (const int stage : {0, 3})
    expect(what_ranks_throw(4,
                            [&](Group g) {
                              const Config c = config_of(kTwo + zero(stage));
                              const DeviceMesh mesh = mesh_of(c, g);
                              Net net(tensor_parallel_of(c, mesh), g.rank() == 1 ? 44 : 40);
                              init_unset(*net, 42);
                              initialize(net, c, mesh);
                            }),
           "ranks 0 and 1, which hold parts of the same layers (parallelism.tp), made different");
  // An exception in one rank's forward, beside replicas that hold other parts.
  const Config config = config_of(kTwo);
  expect(what_ranks_throw(4,
                          [&](Group g) {
                            const DeviceMesh mesh = mesh_of(config, g);
                            Net net = made(tensor_parallel_of(config, mesh), 1);
                            Engine engine = initialize(net, config, mesh);
                            const at::Tensor x = samples_of(0).narrow(0, 0, 2);
                            engine.backward(loss_of(engine.forward(x), x));
                            engine.step();
                            if (g.rank() == 3) engine.forward(x.narrow(2, 0, 4));
                            engine.backward(loss_of(engine.forward(x), x));
                            engine.step();
                          }),
         "mat1 and mat2 shapes cannot be multiplied");
}

TEST(train_parallel_engine, parts_of_layers_without_the_key_are_refused) {
  for (const bool with_mesh : {false, true}) {
    const auto texts = what_ranks_throw(2, [&](Group g) {
      const Config c = config_of({});
      const DeviceMesh own = mesh_of(config_of(kTwo), g);
      Net net = made(TensorParallel(own.group("tp")), 1);
      if (with_mesh)
        initialize(net, c, mesh_of(c, g));
      else
        initialize(net, c, g);
    });
    for (const std::string& text : texts)
      EXPECT_TRUE(has(text, "of parameter 'up.weight', and parallelism.tp is 1")) << text;
  }
}

TEST(train_parallel_engine, ranks_that_hold_parts_are_given_the_same) {
  const Config c = config_of(kTwo);
  const auto said = [&](const std::function<void(Net&, Group)>& change,
                        const std::function<at::Tensor(Group)>& input) {
    return what_ranks_throw(4, [&](Group g) {
      const DeviceMesh mesh = mesh_of(c, g);
      Net net = made(tensor_parallel_of(c, mesh), 1);
      change(net, g);
      Engine engine = initialize(net, c, mesh);
      EXPECT_EQ(engine.data_parallel().size(), 2);
      EXPECT_EQ(engine.data_parallel().rank(), mesh.coordinate("dp"));
      engine.forward(input(g));
    });
  };
  const auto nothing = [](Net&, Group) {};
  const auto same = [](Group) { return samples_of(0).narrow(0, 0, 2); };
  // A DistributedSampler over all ranks.
  for (const std::string& text :
       said(nothing, [](Group g) { return samples_of(0).narrow(0, 2 * g.rank(), 2); }))
    EXPECT_TRUE(has(text, "were given different inputs")) << text;
  for (const std::string& text :
       said([](Net&net,
               Group g) { net->register_buffer("slopes", torch::ones({4}) * (g.rank() % 2)); },
            same))
    EXPECT_TRUE(has(text, "begin with different values of buffer 'slopes'")) << text;
  for (const std::string& text :
       said([](Net&net, Group) { net->register_module("drop", torch::nn::Dropout(0.1)); }, same))
    EXPECT_TRUE(has(text, "'drop' (torch::nn::Dropout") && has(text, "is torch's dropout")) << text;
  // Where it hides.
  for (const std::string& text : said(
           [](Net&net, Group) {
             using torch::nn::MultiheadAttentionOptions;
             net->register_module("attention", torch::nn::MultiheadAttention(
                                                   MultiheadAttentionOptions(4, 2).dropout(0.1)));
           },
           same))
    EXPECT_TRUE(has(text, "'attention' (torch::nn::Multihead")) << text;
  for (const std::string& text :
       said([](Net&net, Group) { net->register_module("drop", torch::nn::Dropout(0.0)); }, same))
    EXPECT_EQ(text, "");
}

/// Fewer key/value heads than ranks, and dropout.
struct SharingNetImpl : torch::nn::Module {
  SharingNetImpl(const TensorParallel& tp, double dropout)
      : block(register_module(
            "block", std::make_shared<ParallelBlock>(
                         tp,
                         ParallelBlockOptions{
                             .width = kWidth, .heads = 4, .kv_heads = 1, .dropout = dropout}))),
        drop(register_module("drop", Dropout(dropout))) {}
  at::Tensor forward(const at::Tensor& x) { return drop(block->forward(x, kTime)); }
  std::shared_ptr<ParallelBlock> block;
  Dropout drop;
};
TORCH_MODULE(SharingNet);

NamedTensors train_sharing(int ranks, const Sets& sets, bool drawn, double dropout,
                           const std::string& save = "", const std::string& load = "",
                           int64_t until = 6) {
  Wholes wholes;
  const Config config = config_of(sets + Sets{"optimizer.params.lr=0.02"});
  run_threads(
      ranks,
      [&](Group g) {
        const DeviceMesh mesh = mesh_of(config, g);
        SharingNet net(tensor_parallel_of(config, mesh), dropout);
        if (drawn) {
          at::NoGradGuard no_grad;
          net->block->attn->qkv->weight.copy_(
              torch::arange(net->block->attn->qkv->weight.numel(), torch::kFloat)
                  .mul(0.1 + g.rank())
                  .sin()
                  .mul(0.2)
                  .reshape(net->block->attn->qkv->weight.sizes()));
        }
        init_unset(*net, 42);
        Engine engine = initialize(net, config, mesh);
        if (!load.empty()) engine.load_checkpoint(load);
        const int64_t dp = mesh.size("dp"), each = kBatch / dp;
        while (engine.global_steps() < until) {
          const at::Tensor x = torch::arange(kBatch * kTime * kWidth, torch::kFloat)
                                   .mul(0.3 + static_cast<double>(engine.global_steps()))
                                   .cos()
                                   .reshape({kBatch, kTime, kWidth})
                                   .narrow(0, mesh.coordinate("dp") * each, each);
          for (int64_t m = 0; m < engine.gradient_accumulation_steps(); ++m) {
            const at::Tensor part = x.narrow(0, 2 * m, 2);
            engine.backward(engine.forward(part).square().mean());
            engine.step();
          }
        }
        if (!save.empty()) engine.save_checkpoint(save);
        engine.gathered([&] { wholes.add(named_parameters(*net), layouts_of(*net)); });
      },
      std::chrono::seconds(90));
  return wholes.all();
}

// Wholes::add() fails where ranks that share a head hold different values of it.
TEST(train_parallel_engine, key_value_heads_that_ranks_share_are_one) {
  const PrivateFolder folder;
  const NamedTensors one = train_sharing(1, {}, false, 0);
  for (const auto& [ranks, sets] : std::vector<std::pair<int, Sets>>{
           {2, kTwo}, {4, kFour}, {4, kTwo + zero(1)}, {4, kTwo + zero(2)}, {4, kTwo + zero(3)}}) {
    const std::string what = fmt::format("{} on {}", fmt::join(sets, " "), ranks);
    EXPECT_LT(relative_distance(train_sharing(ranks, sets, false, 0), one), 1e-5) << what;
    // Drawn by each rank: what they share is the first one's, and a checkpoint has it.
    const std::string step = folder / what;
    const NamedTensors drawn = train_sharing(ranks, sets, true, 0, step, "", 3);
    EXPECT_LT(relative_distance(train_sharing(1, {}, false, 0, "", step),
                                train_sharing(ranks, sets, false, 0, "", step)),
              1e-5)
        << what;
    EXPECT_GT(relative_distance(drawn, one), 1e-3) << what;
  }
}

TEST(train_parallel_engine, dropout_of_ours_drops_alike_on_any_number_of_ranks) {
  const NamedTensors two = train_sharing(2, kTwo, false, 0.2);
  EXPECT_LT(relative_distance(train_sharing(4, kFour, false, 0.2), two), 1e-5);
  EXPECT_GT(relative_distance(train_sharing(2, kTwo, false, 0), two), 1e-3);
}

}  // namespace parallel_engine_test
