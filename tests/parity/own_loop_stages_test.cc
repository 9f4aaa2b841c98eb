// SPDX-License-Identifier: Apache-2.0
// Stages of a pipeline in a loop of one's own, each wrapped in DistributedDataParallel,
// ShardedDataParallel or FullySharded over the data-parallel ranks, with and without divided
// layers, under schedules with whole backwards and with halves: against one process in float64,
// each gradient of the first step, the norm, and clipped SGD steps with unequal weights.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <map>
#include <mutex>
#include <optional>

#include "tests/support/refusals.h"
#include "trireme/trireme.h"

namespace trireme::testing::own_loop_stages_test {
namespace {

using Tensors = std::vector<at::Tensor>;

constexpr int64_t kVocab = 11, kWidth = 8, kHeads = 4, kTime = 6, kRows = 2, kBlocks = 4;
constexpr int kMicroBatches = 8, kSteps = 5;
constexpr double kRate = 0.5, kLimit = 0.4, kTolerance = 1e-10;

/// Some of the blocks; the first stage has the embedding too, and the last one the head.
struct Stage : torch::nn::Module {
  Stage(const TensorParallel& tp, int index, int stages) : first(index == 0) {
    if (first) {
      wte = register_module("wte", std::make_shared<VocabParallelEmbedding>(tp, kVocab, kWidth));
      wpe = register_module("wpe", std::make_shared<ParallelPositions>(tp, kTime, kWidth));
    }
    for (int64_t i = index * kBlocks / stages; i < (index + 1) * kBlocks / stages; ++i) {
      names.push_back("block" + std::to_string(i));
      blocks.push_back(register_module(
          names.back(), std::make_shared<ParallelBlock>(
                            tp, ParallelBlockOptions{.width = kWidth, .heads = kHeads})));
    }
    if (index + 1 == stages) {
      ln = register_module("ln", std::make_shared<ParallelLayerNorm>(tp, kWidth));
      head = register_module("head", std::make_shared<ColumnParallelLinear>(tp, kWidth, kVocab));
    }
    init_gpt(*this, 42, kBlocks);
    to(torch::kDouble);
    torch::NoGradGuard no_grad;
    for (at::Tensor& p : parameters()) p.mul_(p.dim() > 1 ? 10 : 1);  // gradients of some size
  }
  using Run = std::function<at::Tensor(size_t block, const at::Tensor& x)>;
  Tensors forward(const Tensors& in, const Run& run) {
    at::Tensor x = first ? wpe->forward(wte->forward(in[0]), kTime) : in[0];
    for (size_t i = 0; i < blocks.size(); ++i) x = run(i, x);
    return {head ? head->forward(ln->forward(x), kTime) : x};
  }
  at::Tensor run_block(size_t i, const at::Tensor& x) { return blocks[i]->forward(x, kTime); }
  const bool first;
  std::shared_ptr<VocabParallelEmbedding> wte;
  std::shared_ptr<ParallelPositions> wpe;
  std::vector<std::string> names;
  std::vector<std::shared_ptr<ParallelBlock>> blocks;
  std::shared_ptr<ParallelLayerNorm> ln;
  std::shared_ptr<ColumnParallelLinear> head;
};

at::Tensor tokens_of(int64_t number) {
  auto g = at::make_generator<at::CPUGeneratorImpl>(static_cast<uint64_t>(number));
  return torch::randint(0, kVocab, {kRows, kTime + 1}, g, torch::kLong);
}
double weight_of(int64_t number) { return 0.5 + 0.25 * static_cast<double>(number % 5); }

/// What ranks hold, put together: whole parameters by name, and what was seen on the way.
struct Trained {
  std::map<std::string, at::Tensor> gradients, weights;
  std::vector<double> norms, losses;
};

/// Puts a part, or a flat range of it, into the whole.
void put(std::map<std::string, at::Tensor>& wholes, const std::string& name,
         const ParameterLayout& layout, const at::Tensor& flat, int64_t begin) {
  auto [at, is_new] = wholes.emplace(name, torch::full(layout.shape, NAN, torch::kDouble));
  // Where each element of the part lies in the whole.
  const at::Tensor numbers =
      torch::arange(at->second.numel()).view(layout.shape).to(torch::kDouble);
  const at::Tensor places = part_of(numbers, layout).reshape({-1}).to(torch::kLong);
  at->second.view({-1}).index_put_({places.narrow(0, begin, flat.numel())}, flat.reshape({-1}));
}

Trained of_one_process() {
  Trained out;
  Stage net(TensorParallel::alone(), 0, 1);
  torch::optim::SGD optimizer(net.parameters(), torch::optim::SGDOptions(kRate));
  for (int64_t step = 0; step < kSteps; ++step) {
    optimizer.zero_grad();
    double loss = 0;
    for (int64_t i = 0; i < kMicroBatches; ++i) {
      const int64_t number = step * kMicroBatches + i;
      const at::Tensor all = tokens_of(number);
      const at::Tensor logits =
          net.forward({all.narrow(1, 0, kTime)},
                      [&](size_t b, const at::Tensor& x) { return net.run_block(b, x); })[0];
      const at::Tensor mean =
          torch::nn::functional::cross_entropy(logits.reshape({-1, kVocab}),
                                               all.narrow(1, 1, kTime).reshape({-1})) *
          weight_of(number) / kMicroBatches;
      mean.backward();
      loss += mean.item<double>();
    }
    if (step == 0)
      for (const auto& p : net.named_parameters())
        out.gradients[p.key()] = p.value().grad().clone();
    out.norms.push_back(torch::nn::utils::clip_grad_norm_(net.parameters(), kLimit));
    out.losses.push_back(loss);
    optimizer.step();
  }
  for (const auto& p : net.named_parameters()) out.weights[p.key()] = p.value().detach().clone();
  return out;
}

enum class How { all_reduce, ddp, zero1, zero2, zero3, zero3_held };

/// A stage with what reduces its gradients, and the optimizer of what this rank owns of it.
struct Wrapped {
  Wrapped(How h, const TensorParallel& tp, int index, int stages, Group dp)
      : how(h), stage(std::make_shared<Stage>(tp, index, stages)), replicas(dp) {
    if (how == How::ddp) ddp = std::make_unique<DistributedDataParallel>(*stage, dp);
    if (how == How::zero1 || how == How::zero2)
      zero = std::make_unique<ShardedDataParallel>(
          *stage, dp,
          ShardedDataParallelOptions{.stage = how == How::zero1 ? ZeroStage::optimizer
                                                                : ZeroStage::gradients});
    if (how == How::zero3 || how == How::zero3_held) {
      full = std::make_unique<FullySharded>(dp);
      for (size_t i = 0; i < stage->blocks.size(); ++i)
        units.push_back(&full->unit(stage->names[i], *stage->blocks[i]));
      full->root(*stage);
    }
    if (ShardedParameters* s = sharded())
      sharded_sgd = std::make_unique<ShardedOptimizer<torch::optim::SGD>>(
          *s, torch::optim::SGDOptions(kRate));
    else
      sgd =
          std::make_unique<torch::optim::SGD>(stage->parameters(), torch::optim::SGDOptions(kRate));
  }
  ShardedParameters* sharded() {
    return zero ? &zero->sharded() : static_cast<ShardedParameters*>(full.get());
  }
  Tensors forward(const Tensors& in) {
    if (!full)
      return stage->forward(in,
                            [&](size_t i, const at::Tensor& x) { return stage->run_block(i, x); });
    return full->run(
        [&](const Tensors& entered) {
          return stage->forward(entered, [&](size_t i, const at::Tensor& x) {
            return units[i]->run([&](const at::Tensor& y) { return stage->run_block(i, y); }, x);
          });
        },
        in);
  }
  void reduce() {
    if (ddp) return ddp->reduce_accumulated();
    if (zero) return zero->reduce_accumulated();
    if (full) return full->reduce_accumulated();
    for (at::Tensor& p : stage->parameters()) replicas.all_reduce(p.grad(), ReduceOp::avg).wait();
  }
  void zero_grad() { sharded_sgd ? sharded_sgd->zero_grad() : sgd->zero_grad(); }
  void add_shared(const TensorParallel& tp) {
    if (ShardedParameters* s = sharded()) return add_shared_gradients(*s, tp.group());
    add_shared_gradients(*stage, tp);
  }
  double norm(const TensorParallel& tp) {
    constexpr double kNone = 1e300;
    return sharded() ? clip_grad_norm(*sharded(), tp.group(), kNone)
                     : clip_grad_norm(*stage, tp, kNone);
  }
  NamedTensors owned() {
    if (ShardedParameters* s = sharded()) return s->shards();
    NamedTensors all;
    for (const auto& p : stage->named_parameters()) all.emplace_back(p.key(), p.value());
    return all;
  }
  void step() { sharded_sgd ? (void)sharded_sgd->step() : (void)sgd->step(); }

  How how;
  std::shared_ptr<Stage> stage;
  Group replicas;
  std::unique_ptr<DistributedDataParallel> ddp;
  std::unique_ptr<ShardedDataParallel> zero;
  std::unique_ptr<FullySharded> full;
  std::vector<FullySharded::Unit*> units;
  std::unique_ptr<torch::optim::SGD> sgd;
  std::unique_ptr<ShardedOptimizer<torch::optim::SGD>> sharded_sgd;
};

Trained of_ranks(How how, const std::string& name, int pp, int tp, int dp, int virtual_stages) {
  Trained out;
  std::mutex mutex;
  run_threads(pp * tp * dp, [&](Group world) {
    DeviceMesh mesh(world, parallel_axes({.dp_shard = dp, .tp = tp, .pp = pp}));
    mesh.make_groups();
    Group ranks = mesh.group("pp"), replicas = mesh.group("dp_shard");
    const TensorParallel parts(mesh.group("tp"), {.sequence_parallel = tp > 1});
    const int each = kMicroBatches / dp;
    const auto schedule = pipeline::generate_schedule(
        name, {.ranks = pp, .micro_batches = each, .stages_per_rank = virtual_stages});
    std::map<int, std::unique_ptr<Wrapped>> own;
    std::vector<PipelineStage> stages;
    for (int s = 0; s < schedule.stages(); ++s) {
      if (schedule.rank_of_stage[static_cast<size_t>(s)] != ranks.rank()) continue;
      Wrapped* made =
          (own[s] = std::make_unique<Wrapped>(how, parts, s, schedule.stages(), replicas)).get();
      stages.push_back({s, [made](const Tensors& in, int) { return made->forward(in); }});
    }
    PipelineOptions options{.reduce_gradients = [&](int s) { own.at(s)->reduce(); }};
    if (how == How::zero3_held) {
      options.unshard = [&](int s) { own.at(s)->full->unshard(); };
      options.reshard = [&](int s) { own.at(s)->full->reshard(); };
    }
    Pipeline pipeline(ranks, schedule, std::move(stages), options);

    for (int64_t step = 0; step < kSteps; ++step) {
      for (auto& [s, w] : own) w->zero_grad();
      const int64_t first = step * kMicroBatches + replicas.rank() * each;
      Tensors losses;
      {
        // Nothing is reduced before the schedule says so.
        std::vector<std::unique_ptr<DistributedDataParallel::NoSync>> ddp;
        std::vector<std::unique_ptr<ShardedDataParallel::NoSync>> zero;
        std::vector<std::unique_ptr<FullySharded::NoSync>> full;
        for (auto& [s, w] : own) {
          if (w->ddp) ddp.push_back(std::make_unique<DistributedDataParallel::NoSync>(*w->ddp));
          if (w->zero) zero.push_back(std::make_unique<ShardedDataParallel::NoSync>(*w->zero));
          if (w->full) full.push_back(std::make_unique<FullySharded::NoSync>(*w->full));
        }
        losses =
            pipeline.step([&](int i) { return Tensors{tokens_of(first + i).narrow(1, 0, kTime)}; },
                          [&](const Tensors& logits, int i) {
                            const auto target = tokens_of(first + i).narrow(1, 1, kTime);
                            return vocab_parallel_cross_entropy(logits[0], target, kVocab, parts) *
                                   weight_of(first + i) / each;  // and the mean over replicas
                          });
      }
      double squares = 0;
      for (auto& [s, w] : own) {
        w->add_shared(parts);
        squares += std::pow(w->norm(parts), 2);
      }
      at::Tensor sum = torch::full({1}, squares, torch::kDouble);
      ranks.all_reduce(sum).wait();
      const double norm = std::sqrt(sum.item<double>());
      at::Tensor loss = torch::zeros({1}, torch::kDouble);
      for (const at::Tensor& l : losses) loss += l;
      replicas.all_reduce(loss, ReduceOp::avg).wait();
      torch::NoGradGuard no_grad;
      {
        std::lock_guard lock(mutex);
        for (auto& [s, w] : own) {
          const auto layouts = layouts_of(*w->stage);
          for (const auto& [p, t] : w->owned()) {
            if (t.numel() == 0) continue;
            EXPECT_TRUE(t.grad().defined()) << p;
            if (step == 0)
              put(out.gradients, p, layouts.at(p), t.grad(),
                  w->sharded() ? w->sharded()->begin_of(p) : 0);
            t.grad().mul_(std::min(1.0, kLimit / (norm + 1e-6)));
          }
        }
        if (world.rank() == 0) out.norms.push_back(norm);
        if (!losses.empty() && replicas.rank() == 0 && parts.rank() == 0)
          out.losses.push_back(loss.item<double>());
      }
      for (auto& [s, w] : own) w->step();
    }
    for (auto& [s, w] : own) {
      std::optional<FullySharded::Gathered> whole;
      if (w->full) whole.emplace(*w->full);
      const auto layouts = layouts_of(*w->stage);
      std::lock_guard lock(mutex);
      for (const auto& p : w->stage->named_parameters())
        put(out.weights, p.key(), layouts.at(p.key()), p.value().detach(), 0);
    }
  });
  return out;
}

double off_by(const at::Tensor& a, const at::Tensor& b) {
  return (a - b).norm().item<double>() / std::max(b.norm().item<double>(), 1e-3);
}

void expect_near(const Trained& a, const Trained& b) {
  for (const auto& [mine, theirs] :
       {std::pair{&a.gradients, &b.gradients}, {&a.weights, &b.weights}}) {
    EXPECT_EQ(mine->size(), theirs->size());
    for (const auto& [name, whole] : *theirs) {
      const auto found = mine->find(name);
      ASSERT_NE(found, mine->end()) << name;
      EXPECT_LE(off_by(found->second, whole), kTolerance) << name;  // a hole is a NaN, and fails
    }
  }
  ASSERT_EQ(a.norms.size(), b.norms.size());
  ASSERT_EQ(a.losses.size(), b.losses.size());
  for (size_t i = 0; i < b.norms.size(); ++i) {
    EXPECT_GT(b.norms[i], kLimit) << "the limit does not bite in step " << i;
    EXPECT_NEAR(a.norms[i], b.norms[i], kTolerance * b.norms[i]) << "step " << i;
    EXPECT_NEAR(a.losses[i], b.losses[i], kTolerance * b.losses[i]) << "step " << i;
  }
}

struct Row {
  How how;
  std::string schedule;
  int tp = 1, virtual_stages = 1;
};

std::string row_name(const ::testing::TestParamInfo<Row>& info) {
  const char* names[] = {"all_reduce", "ddp", "zero1", "zero2", "zero3", "zero3_held"};
  return fmt::format("{}_{}_tp{}", names[static_cast<int>(info.param.how)], info.param.schedule,
                     info.param.tp);
}

// pp = 2 × dp = 2, and with tp = 2 eight ranks. zero3_held: the schedule says when stages are
// whole.
std::vector<Row> rows() {
  return {{How::all_reduce, "1f1b"},
          {How::ddp, "1f1b"},
          {How::ddp, "zb_h1"},
          {How::ddp, "breadth_first", 1, 2},
          {How::zero1, "1f1b"},
          {How::zero2, "zb_h1"},
          {How::zero2, "interleaved_1f1b", 1, 2},
          {How::zero3, "1f1b"},
          {How::zero3, "breadth_first", 1, 2},
          {How::zero3, "zb_h1"},
          {How::zero3, "zb_v", 1, 2},
          {How::zero3_held, "1f1b"},
          {How::zero3_held, "zb_v", 1, 2},
          {How::ddp, "1f1b", 2},
          {How::zero2, "zb_h1", 2},
          {How::zero3, "1f1b", 2},
          {How::zero3_held, "zb_h1", 2}};
}

class parity_own_loop_stages : public ::testing::TestWithParam<Row> {};

TEST_P(parity_own_loop_stages, train_as_one_process) {
  static const Trained alone = of_one_process();
  const Row& row = GetParam();
  expect_near(of_ranks(row.how, row.schedule, 2, row.tp, 2, row.virtual_stages), alone);
}

INSTANTIATE_TEST_SUITE_P(wrapped, parity_own_loop_stages, ::testing::ValuesIn(rows()), row_name);

TEST(parity_own_loop_stages_refusals, what_has_nothing_to_reduce_says_so) {
  run_threads(2, [](Group g) {
    auto net = std::make_shared<torch::nn::LinearImpl>(2, 2);
    DistributedDataParallel leaves(
        *net, g,
        DdpOptions{.buffers = BufferPolicy::none, .mean = GradientMean::of_weights, .leaves = 2});
    EXPECT_NE(refusal([&] { leaves.reduce_accumulated(); }).find("DdpOptions::leaves"),
              std::string::npos);
    FullySharded driven(g, {.automatic = false});
    auto other = std::make_shared<torch::nn::LinearImpl>(2, 2);
    EXPECT_NE(refusal([&] { driven.unshard(); }).find("root(network)"), std::string::npos);
    driven.root(*other);
    EXPECT_NE(refusal([&] { driven.reduce_accumulated(); }).find("opens and closes rounds"),
              std::string::npos);
    EXPECT_NE(refusal([&] { driven.unshard(1); }).find("there are 1 stages"), std::string::npos);
  });
}

}  // namespace
}  // namespace trireme::testing::own_loop_stages_test
