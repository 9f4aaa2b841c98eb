// SPDX-License-Identifier: Apache-2.0
#include "trireme/train/engine.h"

#include <gtest/gtest.h>
#include <torch/serialize.h>

#include <sstream>

#include "tests/shard/sharded_nets.h"
#include "trireme/base/file.h"

using namespace trireme;
using namespace trireme::testing;

namespace {

Config ds_config(const std::string& more = "") {
  return Config::from_text("ds_config.json", R"({
    "train_micro_batch_size_per_gpu": 4,
    "gradient_clipping": 0,
    "optimizer": {"type": "Adam", "params": {"lr": 0.01}})" +
                                                 more + "}");
}

at::Tensor loss_of(const at::Tensor& y) { return y.to(at::kFloat).pow(2).sum(1).mean(); }

// torch::optim::AdamW on the whole batch: DeepSpeed's "Adam" is AdamW.
Small serial(int steps) {
  Small net = wide(1, at::kFloat);
  torch::optim::AdamW optimizer(net->parameters(),
                                torch::optim::AdamWOptions(0.01).weight_decay(0));
  for (int step = 0; step < steps; ++step) {
    optimizer.zero_grad();
    loss_of(net->forward(rows_of_step(step, at::kFloat))).backward();
    optimizer.step();
  }
  return net;
}

void steps_of(Engine& engine, const Group& g, int from, int to) {
  for (int step = from; step < to; ++step) {
    const at::Tensor mine = part(rows_of_step(step, at::kFloat), g);
    const int64_t micro = engine.gradient_accumulation_steps(), rows = mine.size(0) / micro;
    for (int64_t m = 0; m < micro; ++m) {
      engine.backward(loss_of(engine.forward(mine.narrow(0, m * rows, rows))));
      engine.step();
    }
  }
}

}  // namespace

TEST(train_engine, every_stage_and_accumulation_is_the_serial_run) {
  Small want = serial(kSteps);
  for (int stage : {0, 1, 2})
    for (int accumulation : {1, 2})
      run_threads(2, [&](Group g) {
        Small net = wide(static_cast<uint64_t>(g.rank()) + 1, at::kFloat);
        Engine engine = initialize(
            net,
            ds_config(fmt::format(
                R"(, "gradient_accumulation_steps": {}, "zero_optimization": {{"stage": {}}})",
                accumulation, stage)),
            g);
        steps_of(engine, g, 0, kSteps);
        expect(engine.global_steps() == kSteps, "steps");
        expect_same_parameters(*net, *want, 2e-5);
      });
}

TEST(train_engine, step_does_something_with_the_last_micro_batch_alone) {
  run_threads(2, [](Group g) {
    Small net = wide(1, at::kFloat);
    Engine engine = initialize(net, ds_config(R"(, "gradient_accumulation_steps": 2)"), g);
    const at::Tensor before = net->a->weight.detach().clone();
    engine.backward(loss_of(engine.forward(input(4, at::kFloat))));
    expect(!engine.is_gradient_accumulation_boundary(), "half of a step");
    engine.step();
    expect(torch::equal(net->a->weight, before) && engine.global_steps() == 0, "nothing yet");
    engine.backward(loss_of(engine.forward(input(4, at::kFloat))));
    expect(engine.is_gradient_accumulation_boundary(), "a whole one");
    engine.step();
    expect(!torch::equal(net->a->weight, before) && engine.global_steps() == 1, "now");
  });
}

TEST(train_engine, half_precision_of_the_configuration_trains) {
  for (const char* precision :
       {R"(, "bf16": {"enabled": true})", R"(, "fp16": {"enabled": true, "emulate": true})"})
    run_threads(2, [&](Group g) {
      Small net = wide(1, at::kFloat);
      Engine engine = initialize(
          net, ds_config(std::string(precision) + R"(, "zero_optimization": {"stage": 2})"), g);
      steps_of(engine, g, 0, 1);
      const double first = engine.loss();
      steps_of(engine, g, 0, 20);
      expect(engine.loss() < 0.8 * first, "loss " + std::to_string(engine.loss()));
    });
}

TEST(train_engine, a_checkpoint_goes_on_with_the_same_bits) {
  for (int stage : {0, 2}) {
    PrivateFolder folder;
    const Config config =
        ds_config(fmt::format(R"(, "zero_optimization": {{"stage": {}}})", stage));
    run_threads(2, [&](Group g) {
      Small whole = wide(1, at::kFloat), halves = wide(2, at::kFloat);
      {
        Engine engine = initialize(whole, config, g);
        steps_of(engine, g, 0, 2);
        engine.save_checkpoint(folder.path());
        steps_of(engine, g, 2, 4);
      }
      Engine engine = initialize(halves, config, g);
      expect(engine.load_checkpoint(folder.path()) == 2, "at step 2");
      steps_of(engine, g, 2, 4);
      for (size_t i = 0; i < whole->parameters().size(); ++i)
        expect(torch::equal(whole->parameters()[i], halves->parameters()[i]), "bits");
    });
  }
}

TEST(train_engine, torch_load_after_initialize_is_followed_at_every_stage) {
  const auto file_of = [](Small net) {
    std::ostringstream out;
    torch::save(net, out);
    return out.str();
  };
  const auto load = [](Small& net, const std::string& file) {
    std::istringstream in(file);
    torch::load(net, in);
  };
  const std::string file = file_of(wide(7, at::kFloat)), half = file_of(wide(7, at::kBFloat16));
  Small want = wide(1, at::kFloat);
  torch::optim::AdamW optimizer(want->parameters(),
                                torch::optim::AdamWOptions(0.01).weight_decay(0));
  for (int step = 0; step < kSteps; ++step) {
    if (step == 2) load(want, file);
    optimizer.zero_grad();
    loss_of(want->forward(rows_of_step(step, at::kFloat))).backward();
    optimizer.step();
  }
  for (int stage : {0, 1, 2})
    run_threads(2, [&](Group g) {
      const std::string zero = fmt::format(R"(, "zero_optimization": {{"stage": {}}})", stage);
      Small net = wide(1, at::kFloat);
      Engine engine = initialize(net, ds_config(zero), g);
      steps_of(engine, g, 0, 2);
      load(net, file);
      steps_of(engine, g, 2, kSteps);
      expect_same_parameters(*net, *want, 2e-5);
      // With float32 masters beside the parameters: one small step from what was loaded.
      for (bool emulated : {false, true}) {
        Small model = wide(1, at::kFloat), loaded = wide(7, at::kFloat);
        Engine narrow = initialize(
            model,
            ds_config(zero + (emulated ? R"(, "fp16": {"enabled": true, "emulate": true})"
                                       : R"(, "bf16": {"enabled": true})")),
            g);
        steps_of(narrow, g, 0, 1);
        load(model, emulated ? file : half);
        steps_of(narrow, g, 1, 2);
        narrow.forward(input(2, at::kFloat));  // emulated: the model's tensors are filled here
        expect((model->b->weight - loaded->b->weight).abs().max().item<double>() < 0.02,
               "not what was loaded");
      }
    });
}

TEST(train_engine, torch_load_on_one_rank_after_initialize_is_told_on_all) {
  std::ostringstream out;
  torch::save(wide(7, at::kFloat), out);
  for (int stage : {0, 2}) {
    const auto said = what_ranks_throw(2, [&](Group g) {
      Small net = wide(1, at::kFloat);
      Engine engine = initialize(
          net, ds_config(fmt::format(R"(, "zero_optimization": {{"stage": {}}})", stage)), g);
      std::istringstream in(out.str());
      if (g.rank() == 1) torch::load(net, in);
      steps_of(engine, g, 0, 1);
    });
    for (const auto& text : said)
      EXPECT_NE(text.find("was exchanged or frozen after"), std::string::npos) << text;
  }
}

TEST(train_engine, what_it_cannot_do_is_said) {
  const auto said = what_ranks_throw(1, [](Group g) {
    Small net = wide(1, at::kFloat);
    initialize(net, ds_config(R"(, "zero_optimization": {"stage": 3})"), g);
  });
  EXPECT_NE(said[0].find("nobody knows the units"), std::string::npos) << said[0];
  const auto late = what_ranks_throw(1, [](Group g) {
    Small net = wide(1, at::kFloat);
    Engine engine = initialize(net, ds_config(), g);
    engine.step();
  });
  EXPECT_NE(late[0].find("no backward came before it"), std::string::npos) << late[0];
  const auto constant = what_ranks_throw(1, [](Group g) {
    Small net = wide(1, at::kFloat);
    Engine engine = initialize(net, ds_config(), g);
    engine.backward(torch::ones({}));
  });
  EXPECT_NE(constant[0].find("no scalar that depends on the module"), std::string::npos)
      << constant[0];
}
