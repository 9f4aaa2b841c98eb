// SPDX-License-Identifier: Apache-2.0
// Transformers divided over 1 to 4 ranks against PyTorch's own modules on one process
// (torch_gpt.json), and against one rank where PyTorch has no counterpart (dropout by key).
#include "tests/layers/tensor_parallel/gpt.h"

#include <gtest/gtest.h>
#include <torch/optim/sgd.h>

#include <fstream>
#include <mutex>
#include <nlohmann/json.hpp>

#include "tests/support/paths.h"
#include "trireme/base/check.h"
#include "trireme/comm/start/run.h"
#include "trireme/layers/tensor_parallel/gradients.h"
#include "trireme/tensor/autocast.h"
#include "trireme/tensor/random/random.h"

namespace tensor_parallel_gpt_test {

using namespace trireme;
using namespace trireme::testing;

namespace {

constexpr double kRate = 0.2, kLimit = 0.4;

nlohmann::json torch_runs() {
  std::ifstream file(trireme::testing::source_path("/tests/layers/tensor_parallel/torch_gpt.json"));
  return nlohmann::json::parse(file).at("runs");
}

TestGptOptions options_of(const nlohmann::json& run) {
  TestGptOptions o;
  o.kv_heads = run.at("kv_heads");
  o.swiglu = run.at("swiglu");
  o.tied = run.at("tied");
  return o;
}

void near(double ours, double expected, double tolerance, const std::string& what) {
  trireme::check<Error>(std::abs(ours - expected) <= tolerance * (1 + std::abs(expected)),
                        "{}: {} instead of {}", what, ours, expected);
}

// Steps of SGD; says each step's loss and norm before clipping to `each`.
template <class Each>
void train(TestGpt& model, const TensorParallel& tp, int steps, double smoothing, Each each) {
  std::vector<at::Tensor> parameters;
  for (const auto& [name, p] : named_parameters(model)) parameters.push_back(p);
  torch::optim::SGD sgd(parameters, kRate);
  for (int step = 0; step < steps; ++step) {
    const TokenBatch batch = batch_by_formula(step);
    const RandomScope scope({17, step, {3 * step, 3 * step + 1, 3 * step + 2}});
    const at::Tensor loss = weighted_mean(model.losses(batch.ids, batch.target, smoothing), batch);
    sgd.zero_grad();
    loss.backward();
    add_shared_gradients(model, tp);
    const double norm = clip_grad_norm(model, tp, kLimit);
    each(step, loss.item<double>(), norm);
    sgd.step();
  }
}

// torch_gpt.py's two sums over the whole of a parameter, from the parts that are counted.
std::vector<double> marks_of(const at::Tensor& p, const ParameterLayout& layout, Group group) {
  at::NoGradGuard no_grad;
  const at::Tensor places = at::arange(at::empty(layout.shape).numel(), at::kDouble);
  const at::Tensor waves = part_of(places.mul(0.9).cos().view(layout.shape), layout);
  at::Tensor sums = at::zeros({2}, at::kDouble);
  int64_t row = 0;
  for (const Box& box : layout.boxes) {
    const bool one = layout.boxes.size() == 1;
    const auto part = [&](const at::Tensor& t) {
      return one ? t : t.narrow(0, row, box.lengths[0]);
    };
    const at::Tensor own = part(p).to(at::kDouble);
    if (box.counted) sums.add_(at::stack({own.sum(), own.mul(part(waves)).sum()}));
    row += box.lengths[0];
  }
  if (layout.on("tp") == OnAxis::split) group.all_reduce(sums).wait();
  return {sums[0].item<double>(), sums[1].item<double>()};
}

void compare(const nlohmann::json& expected, int ranks, bool sequence, at::ScalarType dtype,
             double tolerance, bool recomputed = false) {
  run_threads(ranks, [&](Group g) {
    const TensorParallel tp(g, {.sequence_parallel = sequence});
    auto o = options_of(expected);
    o.recomputed = recomputed;
    TestGpt model(tp, o);
    load_formula(model, dtype);
    const auto& losses = expected.at("losses");
    train(model, tp, static_cast<int>(losses.size()), expected.at("smoothing"),
          [&](int step, double loss, double norm) {
            const auto at = static_cast<size_t>(step);
            near(loss, losses[at], tolerance, fmt::format("loss of step {}", step));
            near(norm, expected.at("norms")[at], tolerance, fmt::format("norm of step {}", step));
          });
    const auto layouts = layouts_of(model);
    for (const auto& [name, p] : named_parameters(model)) {
      const auto marks = marks_of(p, layouts.at(name), g);
      // Sums over up to 1,728 elements, which cancel.
      for (size_t i = 0; i < 2; ++i)
        near(marks[i], expected.at("marks").at(name)[i], 20 * tolerance, name);
    }
  });
}

}  // namespace

TEST(layers_tensor_parallel_gpt, twenty_clipped_steps_are_those_of_pytorch_on_one_process) {
  // Every number of ranks with and without sequence_parallel once; the other models in turn.
  int compared = 0, model = 0;
  for (const auto& run : torch_runs()) {
    for (const int ranks : {1, 2, 3, 4})
      for (const bool sequence : {false, true}) {
        const int64_t kv = run.at("kv_heads");
        if (kv >= ranks ? kv % ranks != 0 : ranks % kv != 0) continue;
        if (model > 0 && sequence != ((model + ranks) % 2 == 0)) continue;
        EXPECT_NO_THROW(compare(run, ranks, sequence, at::kDouble, 1e-10))
            << ranks << " ranks, " << kv << " key/value heads, sequence_parallel " << sequence;
        ++compared;
      }
    ++model;
  }
  EXPECT_EQ(compared, 8 + 14);
}

TEST(layers_tensor_parallel_gpt, in_float32_they_are_to_1e_5) {
  const auto runs = torch_runs();
  for (const size_t run : {1, 2})
    for (const bool sequence : {false, true})
      EXPECT_NO_THROW(compare(runs[run], 2, sequence, at::kFloat, 1e-5)) << run;
}

TEST(layers_tensor_parallel_gpt, recomputed_blocks_change_nothing) {
  for (const bool sequence : {false, true})
    EXPECT_NO_THROW(compare(torch_runs()[0], 3, sequence, at::kDouble, 1e-10, true));
}

TEST(layers_tensor_parallel_gpt, dropout_drops_what_it_drops_on_one_process) {
  // Losses by (ranks, sequence, step); one rank is the reference.
  TestGptOptions o;
  o.dropout = 0.25;
  std::vector<double> reference;
  for (const bool recomputed : {false, true})
    for (const int ranks : {1, 2, 3, 4})
      for (const bool sequence : {false, true}) {
        run_threads(ranks, [&](Group g) {
          const TensorParallel tp(g, {.sequence_parallel = sequence});
          auto own = o;
          own.recomputed = recomputed;
          TestGpt model(tp, own);
          load_formula(model);
          train(model, tp, 5, 0, [&](int step, double loss, double norm) {
            const auto at = static_cast<size_t>(2 * step);
            if (reference.size() == at) {
              reference.push_back(loss);
              reference.push_back(norm);
            }
            near(loss, reference.at(at), 1e-10, "loss");
            near(norm, reference.at(at + 1), 1e-10, "norm");
          });
        });
      }
  ASSERT_EQ(reference.size(), 10u);
  // And it did drop: without it the first loss is another.
  EXPECT_GT(std::abs(reference[0] - torch_runs()[0].at("losses")[0].get<double>()), 1e-3);
}

TEST(layers_tensor_parallel_gpt, every_gradient_is_its_part_of_one_ranks) {
  for (const bool sequence : {false, true})
    for (const auto& run : torch_runs())
      for (const int ranks : {2, 4}) {
        const int64_t kv = run.at("kv_heads");
        if (kv >= ranks ? kv % ranks != 0 : ranks % kv != 0) continue;
        std::map<std::string, at::Tensor> whole;
        auto gradients = [&](Group g, auto use) {
          const TensorParallel tp(g, {.sequence_parallel = sequence});
          TestGpt model(tp, options_of(run));
          load_formula(model);
          const TokenBatch batch = batch_by_formula(1);
          weighted_mean(model.losses(batch.ids, batch.target), batch).backward();
          add_shared_gradients(model, tp);
          const auto layouts = layouts_of(model);
          for (const auto& [name, p] : named_parameters(model))
            use(name, p.grad(), layouts.at(name));
        };
        run_threads(1, [&](Group g) {
          gradients(g, [&](auto& name, auto& grad, auto&) { whole[name] = grad; });
        });
        run_threads(ranks, [&](Group g) {
          gradients(g, [&](auto& name, auto& grad, auto& layout) {
            trireme::check<Error>(grad.defined(), "{} has no gradient", name);
            const at::Tensor expected = part_of(whole.at(name), layout);
            trireme::check<Error>(at::allclose(grad, expected, 1e-10, 1e-12), "{}: off by {}", name,
                                  grad.sub(expected).abs().max().template item<double>());
          });
        });
      }
}

TEST(layers_tensor_parallel_gpt, autocast_gives_float32_gradients_near_those_of_float32) {
  for (const bool sequence : {false, true}) {
    std::map<std::string, at::Tensor> exact;
    for (const bool cast : {false, true})
      run_threads(2, [&](Group g) {
        const TensorParallel tp(g, {.sequence_parallel = sequence});
        TestGpt model(tp, options_of(torch_runs()[0]));
        load_formula(model, at::kFloat);
        const TokenBatch batch = batch_by_formula(1);
        at::Tensor loss;
        {
          const AutocastGuard guard(at::kCPU, cast ? std::optional(at::kBFloat16) : std::nullopt);
          loss = weighted_mean(model.losses(batch.ids, batch.target), batch);
        }
        loss.backward();
        static std::mutex mutex;
        const std::lock_guard lock(mutex);
        for (const auto& [name, p] : named_parameters(model)) {
          const auto key = std::to_string(g.rank()) + name;
          trireme::check<Error>(p.grad().scalar_type() == at::kFloat, "{} in another dtype", name);
          if (!cast) {
            exact[key] = p.grad();
            continue;
          }
          const double off = p.grad().sub(exact.at(key)).norm().item<double>();
          const double size = exact.at(key).norm().item<double>();
          trireme::check<Error>(off > 0 && off < 0.05 * size + 1e-3, "{}: off by {} of {}", name,
                                off, size);
        }
      });
  }
}

}  // namespace tensor_parallel_gpt_test
