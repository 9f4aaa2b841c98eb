// SPDX-License-Identifier: Apache-2.0
// Mixed precision, from the configuration to the weights.
#include "trireme/train/precision/precision.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "tests/support/refusals.h"
#include "tests/train/small_runs.h"
#include "trireme/base/error.h"
#include "trireme/checkpoint/reader.h"
#include "trireme/checkpoint/writer.h"
#include "trireme/grad/reducer.h"
#include "trireme/tensor/autocast.h"
#include "trireme/train/build/recompute_setup.h"
#include "trireme/train/evaluate.h"
#include "trireme/train/trainer.h"

namespace precision_test {

using namespace trireme;
using namespace trireme::testing;

namespace {

Config mlp(const Sets& sets) { return digits("mlp", sets); }

/// "float Half -" : stored, compute, autocast.
std::string types(const Sets& sets) {
  const PrecisionPlan p = plan_precision(mlp(sets));
  return std::string(c10::toString(p.stored)) + " " + c10::toString(p.compute) + " " +
         (p.autocast ? c10::toString(*p.autocast) : "-") + (p.masters ? " masters" : "") + " " +
         c10::toString(p.wire) + (p.scale ? p.scale->dynamic ? " dynamic" : " fixed" : "");
}

/// Copies of everything that a checkpoint would hold, as bytes by name.
struct Copy : StateVisitor {
  using StateVisitor::tensor;
  void tensor(const Slice& slice, at::Tensor local) override {
    all.emplace_back(slice.name, local.detach().clone());
  }
  void value(const std::string&, int64_t&) override {}
  void value(const std::string&, double&) override {}
  void value(const std::string&, std::string&) override {}
  NamedTensors all;
};

NamedTensors state_of(Run& run) {
  Copy copy;
  run.state(copy);
  return copy.all;
}

/// Makes the gradient of the first parameter infinite in backwards of this step, on this rank.
void poison(Run& run, std::shared_ptr<bool> on) {
  run.model->parameters()[0].register_hook(
      [on](at::Tensor g) { return *on ? g.mul(INFINITY) : g; });
}

const Sets kEmulated = {"fp16.enabled=true", "fp16.emulate=true"};

Sets with(Sets a, const Sets& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

}  // namespace

TEST(train_precision, sections_and_presets_are_plans) {
  struct Row {
    Sets sets;
    const char* plan;
  };
  const Row rows[] = {
      {{}, "Float Float - Float"},
      {{"bf16.enabled=true"}, "BFloat16 BFloat16 - masters BFloat16"},
      {{"bfloat16.enabled=true"}, "BFloat16 BFloat16 - masters BFloat16"},
      {{"fp16.enabled=true"}, "Half Half - masters Half dynamic"},
      {{"fp16.enabled=true", "fp16.loss_scale=128"}, "Half Half - masters Half fixed"},
      {kEmulated, "Half Float - masters Half dynamic"},
      {{"torch_autocast.enabled=true"}, "Float Float BFloat16 Float"},
      {{"torch_autocast.enabled=true", "torch_autocast.dtype=float16"},
       "Float Float Half Float dynamic"},
      {{"amp.enabled=true"}, "Float Float Half Float dynamic"},
      {{"amp.enabled=true", "amp.opt_level=O0"}, "Float Float - Float"},
      {{"amp.enabled=true", "amp.opt_level=O2"}, "Half Half - masters Half dynamic"},
      {{"amp.enabled=true", "amp.opt_level=O3"}, "Half Half - Half"},
      {{"amp.enabled=true", "amp.opt_level=O1", "amp.dtype=bf16"}, "Float Float BFloat16 Float"},
      {{"amp.enabled=true", "amp.opt_level=O2", "amp.dtype=bf16"},
       "BFloat16 BFloat16 - masters BFloat16"},
      {{"amp.enabled=true", "amp.opt_level=O3", "amp.dtype=bf16"}, "BFloat16 BFloat16 - BFloat16"},
      {{"communication_data_type=fp16"}, "Float Float - Half"},
      {{"bf16.enabled=true", "communication_data_type=fp32"}, "BFloat16 BFloat16 - masters Float"},
  };
  for (const auto& row : rows) EXPECT_EQ(types(row.sets), row.plan) << row.sets.size();
}

TEST(train_precision, the_loss_scale_has_deepspeeds_defaults_and_apex_its_own) {
  const auto ours = *plan_precision(mlp({"fp16.enabled=true"})).scale;
  EXPECT_EQ(ours.initial, 65536);
  EXPECT_EQ(ours.window, 1000);
  EXPECT_EQ(ours.hysteresis, 2);
  EXPECT_FALSE(ours.consecutive_hysteresis);
  EXPECT_EQ(ours.min_scale, 1);
  const auto given =
      *plan_precision(mlp({"fp16.enabled=true", "fp16.initial_scale_power=4",
                           "fp16.loss_scale_window=3", "fp16.hysteresis=5",
                           "fp16.consecutive_hysteresis=true", "fp16.min_loss_scale=0.5"}))
           .scale;
  EXPECT_EQ(given.initial, 16);
  EXPECT_EQ(given.window, 3);
  EXPECT_EQ(given.hysteresis, 5);
  EXPECT_TRUE(given.consecutive_hysteresis);
  EXPECT_EQ(given.min_scale, 0.5);
  const auto apex = *plan_precision(mlp({"amp.enabled=true", "amp.opt_level=O2"})).scale;
  EXPECT_EQ(apex.window, 2000);
  EXPECT_EQ(apex.hysteresis, 1);
}

TEST(train_precision, float16_without_its_kernels_is_refused_with_the_way_out) {
  if (trireme::detail::cpu_half_lacks().empty()) GTEST_SKIP() << "this LibTorch has them";
  run_threads(1, [&](Group g) {
    const std::string why = refusal([&] { build_run(mlp({"fp16.enabled=true"}), g); });
    EXPECT_TRUE(has(why, "fp16.enabled: LibTorch ")) << why;
    EXPECT_TRUE(has(why, "no float16 kernels on a CPU for mm, conv2d, layer_norm")) << why;
    EXPECT_TRUE(has(why, "Set fp16.emulate to true")) << why;
    EXPECT_TRUE(has(refusal([&] {
                      build_run(mlp({"amp.enabled=true", "amp.opt_level=O3"}), g);
                    }),
                    "amp.opt_level O3: LibTorch"));
    EXPECT_TRUE(has(refusal([&] { build_run(mlp({"amp.enabled=true"}), g); }), "autocast"));
  });
}

TEST(train_precision, bf16_and_autocast_train_every_model) {
  PrivateFolder folder;
  const std::string corpus = write_corpus(folder);
  for (const std::string model : {"gpt", "net", "mlp"}) {
    auto make = [&](const Sets& sets) {
      return model == "gpt" ? tiny_gpt(corpus, sets) : digits(model, sets);
    };
    const int64_t steps = 6;
    const double whole = train_on_threads(1, make({}), steps)[0].losses.back();
    for (const Sets& sets :
         {Sets{"bf16.enabled=true"}, Sets{"torch_autocast.enabled=true"},
          Sets{"amp.enabled=true", "amp.opt_level=O3", "amp.dtype=bf16"}, kEmulated}) {
      const Trained t = train_on_threads(1, make(sets), steps)[0];
      EXPECT_NEAR(t.losses.back(), whole, 0.03 * whole) << model << " " << sets[0];
      EXPECT_LT(t.losses.back(), t.losses.front()) << model << " " << sets[0];
    }
  }
}

TEST(train_precision, what_lies_in_memory_is_what_the_plan_says) {
  run_threads(2, [&](Group g) {
    const Config config =
        mlp({"bf16.enabled=true", "optimizer.type=AdamW", "optimizer.params.momentum=auto",
             "optimizer.params.weight_decay=0"});
    trireme::Run run = build_run(config, g);
    start_data(run, config);
    train_step(run);
    int64_t numel = 0, gradients = 0;
    for (const auto& [name, p] : run.gradients->parameters()) {
      EXPECT_EQ(p.scalar_type(), at::kBFloat16);
      EXPECT_EQ(p.grad().scalar_type(), at::kBFloat16);
      numel += p.numel();
      gradients += static_cast<int64_t>(p.grad().nbytes());
    }
    for (const auto& p : run.model->parameters()) EXPECT_EQ(p.scalar_type(), at::kBFloat16);
    int64_t bytes = gradients;
    for (const auto& [name, t] : state_of(run)) bytes += static_cast<int64_t>(t.nbytes());
    EXPECT_EQ(bytes, 16 * numel);
  });
}

TEST(train_precision, activations_in_bfloat16_take_about_half) {
  PrivateFolder folder;
  const std::string corpus = write_corpus(folder);
  auto kept = [&](const Sets& sets) {
    int64_t bytes = 0;
    run_threads(1, [&](Group g) {
      trireme::Run run = build_run(tiny_gpt(corpus, sets), g);
      for (const auto& block : measure_activations(run).blocks) bytes += block.kept;
    });
    return static_cast<double>(bytes);
  };
  const double ratio = kept({"bf16.enabled=true"}) / kept({});
  EXPECT_LT(ratio, 0.62);
  EXPECT_GT(ratio, 0.4);
}

TEST(train_precision, emulation_keeps_float16_and_computes_in_float32) {
  run_threads(1, [&](Group g) {
    const Config config = mlp(kEmulated);
    trireme::Run run = build_run(config, g);
    start_data(run, config);
    train_step(run);
    for (const auto& [name, p] : run.gradients->parameters()) {
      EXPECT_EQ(p.scalar_type(), at::kHalf);
      EXPECT_EQ(p.grad().scalar_type(), at::kHalf);
    }
    for (const auto& p : run.model->parameters()) {
      EXPECT_EQ(p.scalar_type(), at::kFloat);
      EXPECT_FALSE(p.grad().defined());
    }
    evaluate(run);  // takes today's weights over
    const auto copies = run.model->parameters();
    for (size_t i = 0; i < copies.size(); ++i)
      EXPECT_TRUE(copies[i].detach().equal(run.weights[i].second.detach().to(at::kFloat)));
  });
}

TEST(train_precision, an_overflow_leaves_weights_and_optimizer_state_bit_for_bit) {
  for (int n : {1, 2, 4})
    run_threads(n, [&](Group g) {
      const Config config =
          mlp(with(kEmulated, {"fp16.hysteresis=1", "fp16.initial_scale_power=8"}));
      trireme::Run run = build_run(config, g);
      start_data(run, config);
      auto on = std::make_shared<bool>(false);
      if (g.rank() == n - 1) poison(run, on);  // one rank's gradient alone
      const StepReport first = train_step(run);
      EXPECT_EQ(first.loss_scale, 256);
      EXPECT_FALSE(first.skipped);
      const NamedTensors before = state_of(run);
      *on = true;
      const StepReport second = train_step(run);
      EXPECT_TRUE(second.skipped);
      EXPECT_EQ(first_difference(state_of(run), before), "") << "on rank " << g.rank();
      EXPECT_EQ(run.scaling->loss_scale(), 128);
      EXPECT_EQ(run.scaling->skipped(), 1);
      *on = false;
      const StepReport third = train_step(run);
      EXPECT_FALSE(third.skipped);
      EXPECT_NE(first_difference(state_of(run), before), "");
      EXPECT_EQ(run.step, 3);
      EXPECT_EQ(run.optimizer->steps(), 2);
    });
}

// DeepSpeed's count: its scheduler does not step where the optimizer did not, its global step does.
TEST(train_precision, the_learning_rate_waits_for_steps_that_were_skipped) {
  run_threads(1, [&](Group g) {
    const Config config =
        mlp(with(kEmulated, {"scheduler.type=linear", "scheduler.params.warmup_num_steps=4"}));
    trireme::Run run = build_run(config, g);
    start_data(run, config);
    auto on = std::make_shared<bool>(false);
    poison(run, on);
    const double a = train_step(run).lr, b = train_step(run).lr;
    *on = true;
    train_step(run);
    *on = false;
    const double c = train_step(run).lr;
    EXPECT_LT(a, b);
    EXPECT_EQ(c, run.lr->lr_at(2));
    EXPECT_NE(c, run.lr->lr_at(3));
  });
}

TEST(train_precision, at_the_floor_every_rank_stops_with_the_parameter_s_name) {
  std::vector<std::string> said(2);
  std::vector<int64_t> steps(2);
  run_threads(2, [&](Group g) {
    const Config config = mlp(with(kEmulated, {"fp16.hysteresis=1", "fp16.initial_scale_power=2",
                                               "gradient_accumulation_steps=1"}));
    trireme::Run run = build_run(config, g);
    start_data(run, config);
    poison(run, std::make_shared<bool>(true));
    const auto me = static_cast<size_t>(g.rank());
    try {
      for (int i = 0; i < 10; ++i) train_step(run);
    } catch (const NumericError& e) {
      said[me] = e.what();
      steps[me] = run.step;
    }
  });
  EXPECT_EQ(steps[0], 2);  // 4 → 2 → 1, then the floor
  EXPECT_EQ(steps[1], 2);
  EXPECT_EQ(said[0], said[1]);
  EXPECT_TRUE(has(said[0], "layers.0.weight")) << said[0];
  EXPECT_TRUE(has(said[0], "on rank 0")) << said[0];
  EXPECT_TRUE(has(said[0], "at its floor")) << said[0];
}

TEST(train_precision, without_a_loss_scale_a_gradient_that_is_not_finite_is_an_error) {
  std::vector<std::string> said(2);
  run_threads(2, [&](Group g) {
    const Config config = mlp({"bf16.enabled=true"});
    trireme::Run run = build_run(config, g);
    start_data(run, config);
    if (g.rank() == 1) poison(run, std::make_shared<bool>(true));
    try {
      train_step(run);
    } catch (const NumericError& e) {
      said[static_cast<size_t>(g.rank())] = e.what();
    }
  });
  EXPECT_TRUE(has(said[0], "'layers.0.weight' on rank 1 is not finite in step 1")) << said[0];
  EXPECT_EQ(said[0], said[1]);
}

TEST(train_precision, a_resumed_run_ends_with_the_same_bits) {
  PrivateFolder folder;
  for (const Sets& sets :
       {Sets{"bf16.enabled=true"},
        with(kEmulated, {"fp16.loss_scale_window=2", "fp16.initial_scale_power=5"}),
        Sets{"amp.enabled=true", "amp.opt_level=O3", "amp.dtype=bf16"}}) {
    const Config config = mlp(sets);
    const std::string at =
        folder / ("run" + std::to_string(sets.size()) + sets.back().substr(0, 3));
    run_threads(2, [&](Group g) {
      SaveOptions save;
      save.rank = g.rank();
      save.world = g.size();
      trireme::Run whole = build_run(config, g);
      start_data(whole, config);
      for (int i = 0; i < 6; ++i) {
        if (i == 3)
          save_step(
              at, 3, [&](StateVisitor& v) { whole.state(v); }, save);
        train_step(whole);
      }
      g.barrier();
      trireme::Run later = build_run(config, g);
      load_step(at, [&](StateVisitor& v) { later.state(v); });
      EXPECT_EQ(later.step, 3);
      start_data(later, config);
      for (int i = 3; i < 6; ++i) train_step(later);
      EXPECT_EQ(first_difference(state_of(later), state_of(whole)), "");
      EXPECT_EQ(later.scaling->loss_scale(), whole.scaling->loss_scale());
      EXPECT_EQ(later.scaling->skipped(), whole.scaling->skipped());
    });
  }
}

TEST(train_precision, a_trained_model_is_loaded_in_float32_whatever_it_was_trained_in) {
  PrivateFolder folder;
  for (const Sets& sets : {Sets{"bf16.enabled=true"}, kEmulated, Sets{}}) {
    const Config config = mlp(sets);
    const std::string at = folder / ("run" + std::to_string(sets.size()));
    run_threads(1, [&](Group g) {
      trireme::Run run = build_run(config, g);
      start_data(run, config);
      train_step(run);
      SaveOptions save;
      save_step(
          at, 1, [&](StateVisitor& v) { run.state(v); }, save);
      auto model = load_model(config, at);
      const auto loaded = model->named_parameters();
      for (const auto& [name, w] : run.weights) {
        EXPECT_EQ(loaded[name].scalar_type(), at::kFloat);
        EXPECT_TRUE(loaded[name].detach().equal(w.detach().to(at::kFloat))) << name;
      }
    });
  }
}

TEST(train_precision, a_whole_run_evaluates_saves_and_resumes_in_bfloat16) {
  PrivateFolder folder;
  const std::string corpus = write_corpus(folder);
  const Config config = tiny_gpt(corpus, {"bf16.enabled=true", "training.steps=4",
                                          "training.eval_batches=2", "checkpoint.every=2"});
  run_threads(2, [&](Group g) {
    TrainOptions options;
    options.run_dir = folder / "run";
    const TrainResult r = train(config, g, options);
    EXPECT_EQ(r.steps, 4);
    EXPECT_GT(r.held_out_loss, 0);
    TrainOptions again;
    again.run_dir = folder / "again";
    again.resume = options.run_dir + "/step-00000002";
    EXPECT_EQ(train(config, g, again).loss, r.loss);
  });
}

}  // namespace precision_test
