// SPDX-License-Identifier: Apache-2.0
#include "trireme/train/step.h"

#include <gtest/gtest.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/utils/clip_grad.h>
#include <torch/optim/sgd.h>
#include <torch/types.h>

#include <limits>

#include "tests/support/refusals.h"
#include "tests/train/small_runs.h"
#include "trireme/base/error.h"
#include "trireme/optim/optimizer.h"

namespace step_test {

using namespace trireme;
using namespace trireme::testing;

namespace {

using trireme::testing::has;

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

struct Started {
  Started(const Config& config, Group group) : run(build_run(config, group)) {
    start_data(run, config);
  }
  Run run;
};

at::Tensor parameter(Run& run, const std::string& name) {
  return run.model->named_parameters()[name];
}

/// What the next step throws on this rank; "" where nothing.
std::string numeric_error(Run& run, ErrorContext* context = nullptr) {
  try {
    train_step(run);
  } catch (const NumericError& e) {
    if (context) *context = e.context();
    return e.what();
  }
  return "";
}

}  // namespace

TEST(train_step, a_loss_that_is_no_number_stops_every_rank_and_names_the_one) {
  const Config config = digits("mlp");
  run_threads(4, [&](Group g) {
    Started s(config, g);
    EXPECT_EQ(numeric_error(s.run), "");
    at::NoGradGuard no_grad;
    if (g.rank() == 2) parameter(s.run, "layers.0.bias").fill_(kNaN);
    const NamedTensors before = weights_of(s.run);
    ErrorContext context;
    at::AutoGradMode grad(true);
    const std::string text = numeric_error(s.run, &context);
    EXPECT_TRUE(has(text, "rank 2") && has(text, "step 2") && has(text, "nan")) << text;
    EXPECT_EQ(context.rank, 2);
    EXPECT_EQ(context.seq, 2);
    EXPECT_EQ(s.run.step, 1);
    EXPECT_EQ(first_difference(weights_of(s.run), before), "") << "a step was taken";
  });
}

TEST(train_step, a_learning_rate_without_bounds_ends_in_that_error) {
  const Config config = digits("mlp", {"optimizer.params.lr=1e30"});
  run_threads(2, [&](Group g) {
    Started s(config, g);
    std::string text;
    for (int i = 0; i < 5 && text.empty(); ++i) text = numeric_error(s.run);
    EXPECT_TRUE(has(text, "Lower the learning rate")) << text;
  });
}

TEST(train_step, a_gradient_that_is_no_number_names_its_parameter_on_every_rank) {
  for (const Sets& sets : {Sets{}, Sets{"training.reproducible=true", "training.leaves=4"}}) {
    const Config config = digits("mlp", sets);
    run_threads(2, [&](Group g) {
      Started s(config, g);
      if (g.rank() == 1)
        parameter(s.run, "layers.1.weight").register_hook([](at::Tensor grad) {
          at::Tensor bad = grad.clone();
          bad.view(-1)[7] = kNaN;
          return bad;
        });
      const NamedTensors before = weights_of(s.run);
      const std::string text = numeric_error(s.run);
      EXPECT_TRUE(has(text, "'layers.1.weight' on rank 1 is not finite in step 1")) << text;
      EXPECT_EQ(first_difference(weights_of(s.run), before), "") << "a step was taken";
    });
  }
}

namespace {

/// A forward of the test's own in place of the model's.
class Instead : public Compute {
 public:
  explicit Instead(std::function<at::Tensor(const at::Tensor&)> f) : f_(std::move(f)) {}
  std::vector<at::Tensor> forward_list(const std::vector<at::Tensor>& inputs) override {
    return {f_(inputs.at(0))};
  }

 private:
  std::function<at::Tensor(const at::Tensor&)> f_;
};

}  // namespace

TEST(train_step, a_loss_that_depends_on_nothing_is_told_on_every_rank_in_that_step) {
  const Config config = digits("mlp");
  std::vector<std::string> said(4);
  try {
    run_threads(4, [&](Group g) {
      Started s(config, g);
      train_step(s.run);
      if (g.rank() == 1)
        s.run.compute = std::make_unique<Instead>([](const at::Tensor& x) {
          return torch::zeros({x.size(0), 10});
        });
      try {
        train_step(s.run);
      } catch (const Error& e) {
        said[static_cast<size_t>(g.rank())] = std::string(e.kind()) + ": " + e.what();
        throw;
      }
    });
    ADD_FAILURE() << "no error";
  } catch (const Error&) {
  }
  const std::string what = "the loss does not depend on any parameter";
  EXPECT_EQ(said[1].rfind("UsageError: " + what, 0), 0u) << said[1];
  for (size_t r : {0, 2, 3})
    EXPECT_TRUE(has(said[r], "rank 1 failed in step 2: " + what)) << said[r];
}

TEST(train_step, a_parameter_that_gets_no_gradient_is_named_on_every_rank_in_that_step) {
  for (const bool found : {false, true}) {
    const Config config = digits(
        "mlp", {std::string("training.find_unused_parameters=") + (found ? "true" : "false")});
    run_threads(2, [&](Group g) {
      Started s(config, g);
      s.run.compute = std::make_unique<Instead>([&](const at::Tensor& x) {
        return parameter(s.run, "layers.1.bias").expand({x.size(0), 10});
      });
      const at::Tensor before = parameter(s.run, "layers.0.weight").clone();
      std::string text;
      try {
        train_step(s.run);
      } catch (const UsageError& e) {
        text = e.what();
      }
      EXPECT_EQ(has(text,
                    "3 parameters did not get a gradient from every rank in this backward: "
                    "'layers.0.weight' (from none)"),
                !found)
          << text;
      EXPECT_TRUE(parameter(s.run, "layers.0.weight").equal(before));
    });
  }
}

TEST(train_step, a_frozen_parameter_is_not_touched) {
  PrivateFolder folder;
  const std::string corpus = write_corpus(folder);
  for (const Sets& sets : {Sets{}, Sets{"training.reproducible=true", "training.leaves=4"}}) {
    const Config config = tiny_gpt(corpus, sets);
    run_threads(2, [&](Group g) {
      Started s(config, g);
      // Frozen after the run was built, so gradients and optimizer still know them: decay too must
      // leave them alone.
      const std::vector<std::string> frozen = {"wpe.weight", "blocks.0.attn.qkv.weight",
                                               "blocks.1.ln2.bias"};
      for (const auto& name : frozen) parameter(s.run, name).set_requires_grad(false);
      const NamedTensors before = weights_of(s.run);
      for (int i = 0; i < 3; ++i) train_step(s.run);
      const NamedTensors after = weights_of(s.run);
      for (size_t i = 0; i < before.size(); ++i) {
        const bool is_frozen =
            std::find(frozen.begin(), frozen.end(), before[i].first) != frozen.end();
        EXPECT_EQ(before[i].second.equal(after[i].second), is_frozen) << before[i].first;
        EXPECT_NE(parameter(s.run, before[i].first).grad().defined(), is_frozen) << before[i].first;
      }
    });
  }
}

TEST(train_step, parameters_left_out_of_the_run_need_no_gradient_memory) {
  const Config config = digits("mlp");
  run_threads(2, [&](Group g) {
    Started s(config, g);
    parameter(s.run, "layers.0.weight").set_requires_grad(false);
    NamedTensors trained;
    for (const auto& item : s.run.model->named_parameters())
      if (item.value().requires_grad()) trained.emplace_back(item.key(), item.value());
    s.run.gradients = whole_gradients(trained, NamedTensors{}, g);
    s.run.optimizer = make_sgd(trained);
    const at::Tensor before = parameter(s.run, "layers.0.weight").clone();
    const StepReport first = train_step(s.run);
    double last = 0;
    for (int i = 0; i < 20; ++i) last = train_step(s.run).loss;
    EXPECT_TRUE(parameter(s.run, "layers.0.weight").equal(before));
    EXPECT_LT(last, first.loss);
  });
}

TEST(train_step, one_step_equals_torch_with_clip_grad_norm) {
  for (const double clip : {0.25, 1e6}) {  // bites, and does not
    const Config config =
        digits("mlp", {"gradient_clipping=" + std::to_string(clip), "optimizer.params.lr=0.5",
                       "optimizer.params.momentum=0", "optimizer.params.weight_decay=0"});
    // The whole batch on one rank, with torch's own pieces.
    NamedTensors want;
    double want_norm = 0, want_loss = 0;
    run_threads(1, [&](Group g) {
      Started s(config, g);
      const MicroBatch batch = s.run.loader->next().at(0);
      EXPECT_EQ(batch.samples.size(), 16u);
      std::vector<at::Tensor> parameters = s.run.model->parameters();
      torch::optim::SGD sgd(parameters, torch::optim::SGDOptions(0.5));
      at::Tensor loss =
          torch::nn::functional::cross_entropy(s.run.model->forward(batch.input), batch.target);
      loss.backward();
      want_norm = torch::nn::utils::clip_grad_norm_(parameters, clip);
      want_loss = loss.item<double>();
      sgd.step();
      want = weights_of(s.run);
    });
    EXPECT_EQ(want_norm > clip, clip < 1) << want_norm;
    run_threads(2, [&](Group g) {
      Started s(config, g);
      const StepReport r = train_step(s.run);
      EXPECT_NEAR(r.grad_norm, want_norm, 1e-5 * want_norm);
      EXPECT_NEAR(r.loss, want_loss, 1e-5 * want_loss);
      EXPECT_LT(relative_distance(weights_of(s.run), want), 1e-6);
    });
  }
}

TEST(train_step, the_report_is_of_the_global_batch) {
  PrivateFolder folder;
  const Config config = tiny_gpt(write_corpus(folder), {"gradient_accumulation_steps=2"});
  run_threads(2, [&](Group g) {
    Started s(config, g);
    for (int step = 0; step < 3; ++step) {
      const StepReport r = train_step(s.run);
      EXPECT_EQ(r.samples, 16);
      EXPECT_EQ(r.weight, 16 * 16);  // tokens
      EXPECT_EQ(s.run.step, step + 1);
      EXPECT_DOUBLE_EQ(r.lr, s.run.lr->lr_at(step));
      EXPECT_FALSE(r.stop);
    }
  });
}

TEST(train_step, who_asks_to_stop_stops_all) {
  const Config config = digits("mlp", {"train_batch_size=12"});
  run_threads(3, [&](Group g) {
    Started s(config, g);
    EXPECT_FALSE(train_step(s.run).stop);
    EXPECT_TRUE(train_step(s.run, g.rank() == 2).stop);
    EXPECT_EQ(s.run.step, 2);  // the step itself was done
    EXPECT_FALSE(train_step(s.run).stop);
  });
}

TEST(train_step, dropout_is_on_in_training_and_the_step_changes_it) {
  // The same batch twice with a learning rate of 0: only the masks can change the loss.
  PrivateFolder folder;
  const Config config = tiny_gpt(write_corpus(folder), {"optimizer.params.lr=0"});
  run_threads(1, [&](Group g) {
    Started s(config, g);
    const Batch batch = s.run.loader->next();
    s.run.loader =
        std::make_unique<PrefetchingLoader>([&](int64_t) { return batch; }, LoaderOptions{});
    const double first = train_step(s.run).loss, second = train_step(s.run).loss;
    EXPECT_NE(first, second);
    s.run.step = 0;
    EXPECT_EQ(train_step(s.run).loss, first);  // keyed by the step: the same masks again
  });
}

}  // namespace step_test
