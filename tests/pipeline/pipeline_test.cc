// SPDX-License-Identifier: Apache-2.0
#include "trireme/pipeline/pipeline.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <mutex>

#include "trireme/base/error.h"
#include "trireme/comm/start/run.h"
#include "trireme/pipeline/schedule/messages.h"

namespace trireme::testing::pipeline_test {
namespace {

using pipeline::generate_schedule;
using pipeline::Schedule;
using Tensors = std::vector<at::Tensor>;

constexpr int kWidth = 12, kRows = 3, kClasses = 5;

/// What one of `stages` computes. The first has an embedding, the last a head; each passes on a
/// mask beside its activations.
struct BlockImpl : torch::nn::Module {
  BlockImpl(int index, int stages) : first(index == 0), last(index + 1 == stages) {
    if (first) embedding = register_module("embedding", torch::nn::Embedding(7, kWidth));
    norm = register_module("norm", torch::nn::LayerNorm(torch::nn::LayerNormOptions({kWidth})));
    up = register_module("up", torch::nn::Linear(kWidth, 2 * kWidth));
    down = register_module("down", torch::nn::Linear(2 * kWidth, kWidth));
    if (last) head = register_module("head", torch::nn::Linear(kWidth, kClasses));
    torch::NoGradGuard no_grad;  // of its own: ranks are threads and share LibTorch's
    torch::Generator g = at::make_generator<at::CPUGeneratorImpl>(100 + index);
    for (at::Tensor& p : parameters()) p.normal_(0, 0.3, g);
  }
  Tensors forward(const Tensors& in) {
    at::Tensor x = first ? embedding(in[0]) : in[0];
    x = x + down(torch::gelu(up(norm(x))));
    if (last) return {head(x.index({in[1]}))};
    return {x, in[1]};
  }
  bool first, last;
  torch::nn::Embedding embedding{nullptr};
  torch::nn::LayerNorm norm{nullptr};
  torch::nn::Linear up{nullptr}, down{nullptr}, head{nullptr};
};
TORCH_MODULE(Block);

/// Micro-batches of different lengths.
Tensors inputs_of(int micro_batch) {
  torch::Generator g = at::make_generator<at::CPUGeneratorImpl>(1000 + micro_batch);
  const int length = 4 + micro_batch % 3;
  return {at::randint(0, 7, {kRows, length}, g, at::kLong), at::rand({kRows, length}, g) > 0.3};
}
at::Tensor loss_of(const Tensors& out, int micro_batch) {
  torch::Generator g = at::make_generator<at::CPUGeneratorImpl>(2000 + micro_batch);
  return torch::cross_entropy_loss(out[0], at::randint(0, kClasses, {out[0].size(0)}, g, at::kLong),
                                   {}, at::Reduction::Sum);
}

struct Result {
  std::vector<at::Tensor> losses, gradients;
};

/// Micro-batches whose gradients are added in the order in which the schedule adds them: as they
/// come, but breadth-first from the last to the first.
Result of_one_process(const Schedule& schedule) {
  std::vector<Block> blocks;
  for (int s = 0; s < schedule.stages(); ++s) blocks.emplace_back(s, schedule.stages());
  Result result;
  for (int i = 0; i < schedule.micro_batches; ++i) {
    Tensors x = inputs_of(i);
    for (Block& b : blocks) x = b->forward(x);
    result.losses.push_back(loss_of(x, i));
  }
  for (const pipeline::Action& a : schedule.actions[0])
    if (a.stage == 0 && pipeline::gives_weight_gradient(a.kind))
      result.losses[static_cast<size_t>(a.micro_batch)].backward();
  for (Block& b : blocks)
    for (const at::Tensor& p : b->parameters()) result.gradients.push_back(p.grad());
  return result;
}

std::vector<PipelineStage> stages_of(const Schedule& schedule, int rank,
                                     std::map<int, Block>& blocks) {
  std::vector<PipelineStage> stages;
  for (int s = 0; s < schedule.stages(); ++s)
    if (schedule.rank_of_stage[static_cast<size_t>(s)] == rank) {
      Block block(s, schedule.stages());
      blocks.emplace(s, block);
      stages.push_back({s, [block](const Tensors& in, int) mutable { return block->forward(in); }});
    }
  return stages;
}

Result of_a_pipeline(const Schedule& schedule, int steps = 1) {
  Result result;
  std::mutex mutex;
  std::map<int, Block> all;
  run_threads(schedule.ranks(), [&](Group group) {
    std::map<int, Block> blocks;
    Pipeline pipeline(group, schedule, stages_of(schedule, group.rank(), blocks));
    for (int step = 0; step < steps; ++step) {
      for (auto& [s, b] : blocks) b->zero_grad();
      auto losses = pipeline.step(inputs_of, loss_of);
      std::lock_guard lock(mutex);
      if (pipeline.has_last_stage()) result.losses = losses;
    }
    std::lock_guard lock(mutex);
    for (auto& [s, b] : blocks) all.emplace(s, b);
  });
  for (auto& [s, b] : all)
    for (const at::Tensor& p : b->parameters()) result.gradients.push_back(p.grad());
  return result;
}

void expect_same(const Result& a, const Result& b, const std::string& what) {
  ASSERT_EQ(a.losses.size(), b.losses.size()) << what;
  for (size_t i = 0; i < a.losses.size(); ++i)
    EXPECT_TRUE(at::equal(a.losses[i], b.losses[i])) << what << ", loss " << i;
  ASSERT_EQ(a.gradients.size(), b.gradients.size()) << what;
  for (size_t i = 0; i < a.gradients.size(); ++i) {
    ASSERT_TRUE(b.gradients[i].defined()) << what << ", gradient " << i;
    EXPECT_TRUE(at::equal(a.gradients[i], b.gradients[i])) << what << ", gradient " << i;
  }
}

TEST(pipeline_pipeline, every_schedule_has_the_bits_of_one_process) {
  int ran = 0;
  for (const auto& kind : pipeline::schedule_kinds())
    for (const int p : {1, 2, 3, 4})
      for (const int m : {1, p, 2 * p, 2 * p + 2}) {
        Schedule schedule;
        try {
          schedule = generate_schedule(kind.name, {p, m, kind.stages_per_rank});
        } catch (const UsageError&) {
          continue;  // its conditions do not hold
        }
        expect_same(of_one_process(schedule), of_a_pipeline(schedule),
                    fmt::format("{} on {} ranks, {} micro-batches", kind.name, p, m));
        ++ran;
      }
  EXPECT_GE(ran, 8 * 4 * 2 + 4);
}

TEST(pipeline_pipeline, a_second_step_is_like_the_first) {
  for (const char* name : {"1f1b", "zb_v"}) {
    const Schedule schedule = generate_schedule(name, {2, 4, name[0] == '1' ? 1 : 2});
    expect_same(of_a_pipeline(schedule, 1), of_a_pipeline(schedule, 3), name);
  }
}

TEST(pipeline_pipeline, evaluation_gives_the_outputs_of_one_process_and_no_graph) {
  for (const char* name : {"1f1b", "interleaved_1f1b", "zb_v"}) {
    const Schedule schedule = generate_schedule(name, {2, 4, name[0] == '1' ? 1 : 2});
    std::vector<Block> blocks;
    for (int s = 0; s < schedule.stages(); ++s) blocks.emplace_back(s, schedule.stages());
    run_threads(2, [&](Group group) {
      std::map<int, Block> own;
      Pipeline pipeline(group, schedule, stages_of(schedule, group.rank(), own));
      const auto found = pipeline.evaluate(inputs_of);
      ASSERT_EQ(found.size(), pipeline.has_last_stage() ? 4 : 0);
      for (size_t i = 0; i < found.size(); ++i) {
        Tensors x = inputs_of(static_cast<int>(i));
        for (Block& b : blocks) x = b->forward(x);
        EXPECT_FALSE(found[i][0].requires_grad());
        EXPECT_TRUE(at::equal(found[i][0], x[0].detach())) << name << i;
      }
    });
  }
}

TEST(pipeline_pipeline, frozen_stages_pass_their_outputs_on_and_get_no_gradient) {
  for (const char* name : {"1f1b", "zb_h1"}) {
    const Schedule schedule = generate_schedule(name, {3, 4, 1});
    run_threads(3, [&](Group group) {
      std::map<int, Block> blocks;
      auto stages = stages_of(schedule, group.rank(), blocks);
      if (group.rank() < 2)
        for (at::Tensor p : blocks.at(group.rank())->parameters()) p.set_requires_grad(false);
      Pipeline(group, schedule, stages).step(inputs_of, loss_of);
      for (const at::Tensor& p : blocks.at(group.rank())->parameters())
        EXPECT_EQ(p.grad().defined(), group.rank() == 2) << name;
    });
  }
}

TEST(pipeline_pipeline, gradients_are_reduced_over_replicas_once_they_are_complete) {
  constexpr int kPp = 2, kDp = 2, kMicro = 4;
  const Schedule schedule = generate_schedule("1f1b", {kPp, kMicro, 1});
  const Result alone = of_one_process(schedule);
  run_threads(kPp * kDp, [&](Group world) {
    Group pp = world.split(world.rank() % kDp), dp = world.split(world.rank() / kDp);
    std::map<int, Block> blocks;
    auto stages = stages_of(schedule, pp.rank(), blocks);
    int reductions = 0;
    PipelineOptions options;
    options.reduce_gradients = [&](int stage) {
      EXPECT_EQ(stage, pp.rank());
      ++reductions;
      for (const at::Tensor& p : blocks.at(stage)->parameters())
        dp.all_reduce(p.grad(), ReduceOp::avg).wait();
    };
    Pipeline(pp, schedule, stages, options).step(inputs_of, loss_of);
    EXPECT_EQ(reductions, 1);
    size_t at = pp.rank() == 0 ? 0 : alone.gradients.size();
    if (pp.rank() == 1) at -= blocks.at(1)->parameters().size();
    for (const at::Tensor& p : blocks.at(pp.rank())->parameters())  // replicas had the same data
      EXPECT_TRUE(at::equal(p.grad(), alone.gradients[at++]));
  });
}

TEST(pipeline_pipeline, halves_of_a_backward_run_no_forward_again) {
  const Schedule schedule = generate_schedule("zb_h1", {2, 4, 1});
  int forwards = 0;
  std::mutex mutex;
  run_threads(2, [&](Group group) {
    std::map<int, Block> blocks;
    auto stages = stages_of(schedule, group.rank(), blocks);
    for (auto& stage : stages)
      stage.forward = [&, inner = stage.forward](const Tensors& in, int i) {
        std::lock_guard lock(mutex);
        ++forwards;
        return inner(in, i);
      };
    Pipeline(group, schedule, stages).step(inputs_of, loss_of);
  });
  EXPECT_EQ(forwards, 2 * 4);
}

std::string error_of(int ranks, const std::function<void(Group)>& body) {
  std::string first;
  std::mutex mutex;
  int failed = 0;
  try {
    run_threads(ranks, [&](Group group) {
      try {
        body(group);
      } catch (const Error& e) {
        std::lock_guard lock(mutex);
        ++failed;
        first = e.what();
        throw;
      }
    });
  } catch (const std::exception& e) {
    first = e.what();
  }
  EXPECT_EQ(failed, ranks) << "every rank hears of it";
  return first;
}

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST(pipeline_pipeline, an_exception_in_a_stage_is_named_on_all_ranks) {
  const Schedule schedule = generate_schedule("1f1b", {3, 4, 1});
  const std::string text = error_of(3, [&](Group group) {
    std::map<int, Block> blocks;
    auto stages = stages_of(schedule, group.rank(), blocks);
    if (group.rank() == 1)
      stages[0].forward = [inner = stages[0].forward](const Tensors& in, int i) {
        if (i == 2) throw UsageError("the second block is broken");
        return inner(in, i);
      };
    Pipeline(group, schedule, stages).step(inputs_of, loss_of);
  });
  EXPECT_TRUE(has(text, "the second block is broken")) << text;
}

TEST(pipeline_pipeline, what_ranks_were_given_wrongly_is_refused_on_all_of_them) {
  const Schedule schedule = generate_schedule("1f1b", {2, 4, 1});
  auto given =
      [&](const std::function<void(Group, std::vector<PipelineStage>&, Schedule&)>& spoil) {
        return error_of(2, [&](Group group) {
          std::map<int, Block> blocks;
          auto stages = stages_of(schedule, group.rank(), blocks);
          Schedule own = schedule;
          spoil(group, stages, own);
          Pipeline(group, own, stages).step(inputs_of, loss_of);
        });
      };
  EXPECT_TRUE(has(given([](Group g, auto& stages, auto&) {
                    if (g.rank() == 1) stages[0].index = 0;
                  }),
                  "stage 0"));
  EXPECT_TRUE(has(given([](Group g, auto& stages, auto&) {
                    if (g.rank() == 0) stages.clear();
                  }),
                  "stage 0 not at all"));
  EXPECT_TRUE(has(given([](Group g, auto& stages, auto&) {
                    if (g.rank() == 0) stages.push_back({7, stages[0].forward});
                  }),
                  "stages 0 to 1"));
  EXPECT_TRUE(has(given([](Group g, auto&, Schedule& own) {
                    if (g.rank() == 1) own = generate_schedule("gpipe", {2, 4, 1});
                  }),
                  "different schedules"));
  EXPECT_TRUE(has(given([](Group, auto&, Schedule& own) {
                    own = generate_schedule("1f1b", {3, 4, 1});
                  }),
                  "3 ranks"));
  EXPECT_TRUE(
      has(given([](Group, auto&, Schedule& own) { own.actions[0].pop_back(); }), "stage 0"));
  EXPECT_TRUE(
      has(given([](Group, auto& stages, auto&) { stages[0].forward = nullptr; }), "no forward"));
}

TEST(pipeline_pipeline, outputs_that_cannot_be_passed_on_are_refused) {
  const Schedule schedule = generate_schedule("gpipe", {2, 2, 1});
  auto passing = [&](const std::function<Tensors(const at::Tensor&)>& out) {
    return error_of(2, [&](Group group) {
      const at::Tensor w = at::ones({2}).requires_grad_();
      Pipeline(group, schedule,
               {{group.rank(),
                 [&](const Tensors& in, int) {
                   return group.rank() == 0 ? out(w * 2) : Tensors{in[0] * w};
                 }}})
          .step([](int) { return Tensors{at::ones({2})}; },
                [](const Tensors& y, int) { return y[0].sum(); });
    });
  };
  EXPECT_TRUE(has(passing([](const at::Tensor& x) { return Tensors(9, x); }), "8 at most"));
  EXPECT_TRUE(
      has(passing([](const at::Tensor& x) { return Tensors{x.to(at::kComplexFloat)}; }), "dtype"));
  EXPECT_TRUE(has(passing([](const at::Tensor& x) { return Tensors{x.to_sparse()}; }), "sparse"));
  EXPECT_TRUE(has(passing([](const at::Tensor&) { return Tensors{at::Tensor()}; }), "undefined"));
}

TEST(pipeline_pipeline, a_loss_that_is_not_one_number_is_refused) {
  const Schedule schedule = generate_schedule("1f1b", {2, 2, 1});
  const std::string text = error_of(2, [&](Group group) {
    std::map<int, Block> blocks;
    auto stages = stages_of(schedule, group.rank(), blocks);
    Pipeline(group, schedule, stages).step(inputs_of, [](const Tensors& y, int) { return y[0]; });
  });
  EXPECT_TRUE(has(text, "one number")) << text;
}

}  // namespace
}  // namespace trireme::testing::pipeline_test
