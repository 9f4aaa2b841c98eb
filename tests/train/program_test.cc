// SPDX-License-Identifier: Apache-2.0
#include "trireme/train/program/program.h"

#include <gtest/gtest.h>
#include <torch/optim/sgd.h>
#include <torch/script.h>

#include <map>

#include "tests/support/refusals.h"
#include "tests/train/program_runs.h"

namespace program_test {

using namespace trireme;
using namespace trireme::testing;

TEST(train_program, trains_what_a_plain_loop_of_torch_trains) {
  const Config config = config_for<DigitsProgram>();
  const Ran ran = on_threads<DigitsProgram>(1, config);
  // The same pieces, loss and optimizer, by LibTorch alone.
  SmallNet body(784, 32), neck(32, 32), head(32, 10);
  std::map<std::string, at::Tensor> mine;
  for (auto& [path, net] :
       std::map<std::string, SmallNet>{{"body", body}, {"neck", neck}, {"head", head}})
    for (auto& item : net->named_parameters()) mine[path + "." + item.key()] = item.value();
  {
    at::NoGradGuard no_grad;
    for (const auto& [name, w] : ran.before) mine.at(name).copy_(w);
  }
  std::vector<at::Tensor> parameters;
  for (auto& [name, p] : mine) parameters.push_back(p);
  torch::optim::SGD sgd(parameters, torch::optim::SGDOptions(0.05).momentum(0.9));
  const auto source = make_digits({256, 42, "train"});
  const GlobalBatch plan({.dataset_size = 256, .leaf_size = 16, .leaves = 1, .seed = 42});
  for (int64_t step = 0; step < 6; ++step) {
    const MicroBatch b = source->get(plan.leaf(step, 0).ids);
    sgd.zero_grad();
    const at::Tensor x = torch::relu(body(b.input));
    at::Tensor loss = cross_entropy_sum(head(neck(x)), b.target) / 16;
    loss.backward();
    sgd.step();
    EXPECT_NEAR(ran.losses[static_cast<size_t>(step)].at("all"), loss.item<double>(), 1e-5);
  }
  NamedTensors wanted;
  for (const auto& [name, w] : ran.weights) wanted.emplace_back(name, mine.at(name).detach());
  EXPECT_LT(relative_distance(ran.weights, wanted), 1e-6);
  EXPECT_GT(relative_distance(ran.weights, ran.before), 1e-3);
}

TEST(train_program, has_what_the_built_in_models_have) {
  const Ran plain = on_threads<DigitsProgram>(1, config_for<DigitsProgram>());
  struct Row {
    Sets sets;
    int ranks;
    double tolerance;  // 0: the same bits as on one rank with the same keys
  };
  for (const Row& row : std::vector<Row>{
           {{}, 2, 1e-6},
           {{}, 4, 1e-6},
           {{"gradient_accumulation_steps=2"}, 2, 1e-6},
           {{"zero_optimization.stage=1"}, 2, 1e-6},
           {{"zero_optimization.stage=2"}, 2, 1e-6},
           {{"zero_optimization.stage=3"}, 2, 1e-6},
           {{"zero_optimization.stage=3", "training.recompute_every=1"}, 2, 1e-6},
           {{"training.recompute_every=2"}, 2, 1e-6},
           {{"balance.mode=throughput"}, 2, 1e-6},
           {{"bf16.enabled=true"}, 2, 0.05},
           {{"zero_optimization.stage=3", "bf16.enabled=true"}, 2, 0.05},
           {{"torch_autocast.enabled=true"}, 2, 0.05},
           {{"fp16.enabled=true", "fp16.emulate=true"}, 2, 0.05},
           {{"compression.type=int8", "compression.start_step=0"}, 2, 0.05},
       }) {
    const Ran ran = on_threads<DigitsProgram>(row.ranks, config_for<DigitsProgram>(row.sets));
    const std::string what = row.sets.empty() ? "" : row.sets[0];
    EXPECT_LT(relative_distance(ran.weights, plain.weights), row.tolerance) << what;
    EXPECT_GT(relative_distance(ran.weights, ran.before), 1e-3) << what;
  }
}

TEST(train_program, reproducible_mode_gives_the_same_bits_on_any_number_of_ranks) {
  const Config config = config_for<DigitsProgram>(
      {"training.reproducible=true", "training.leaves=4", "zero_optimization.stage=0"});
  const Ran one = on_threads<DigitsProgram>(1, config);
  for (const int ranks : {2, 4})
    EXPECT_EQ(first_difference(on_threads<DigitsProgram>(ranks, config).weights, one.weights), "")
        << ranks;
}

TEST(train_program, a_gan_makes_two_updates_a_step_that_train_their_own_pieces) {
  const Ran one = on_threads<RingGan>(1, config_for<RingGan>(), 4);
  // By LibTorch alone, with the noise that the program drew.
  struct Critic final : RingGan {
    void step(Trainer& t) override { t.update("critic", with_noise(t)); }
    static Batch with_noise(Trainer& t) {
      Batch batch = t.next_batch();
      for (MicroBatch& b : batch) b.more = {{"noise", torch::ones({b.input.size(0), 4})}};
      return batch;
    }
  };
  const Ran critic = on_threads<Critic>(2, config_for<Critic>(), 2);
  for (size_t i = 0; i < critic.weights.size(); ++i)
    EXPECT_EQ(critic.weights[i].second.equal(critic.before[i].second),
              critic.weights[i].first.starts_with("generator."))
        << critic.weights[i].first;
  EXPECT_EQ(one.losses[0].size(), 2u);
  EXPECT_NEAR(one.losses[0].at("generator"), std::log(2), 0.3);
  EXPECT_NEAR(one.losses[0].at("critic"), 2 * std::log(2), 0.5);
}

TEST(train_program, a_gan_is_the_same_under_every_stage_and_its_rates_are_its_own) {
  const Ran plain = on_threads<RingGan>(2, config_for<RingGan>(), 4);
  for (const int stage : {1, 2, 3}) {
    const Ran ran = on_threads<RingGan>(
        2, config_for<RingGan>({"zero_optimization.stage=" + std::to_string(stage)}), 4);
    EXPECT_LT(relative_distance(ran.weights, plain.weights), 1e-6) << stage;
  }
  struct TwoKinds final : RingGan {
    std::vector<Update> updates(const Config&) override {
      return {{"critic", {"critic"}, {"optimizer.type=SGD", set_key("optimizer.params.lr", 3e-9)}},
              {"generator", {"generator"}}};
    }
  };
  const Config adam = config_for<TwoKinds>(
      {}, R"({"train_batch_size": 16, "optimizer": {"type": "AdamW", "params": {"lr": 1e-3,
           "betas": [0.5, 0.9]}}})");
  const Ran two_kinds = on_threads<TwoKinds>(2, adam, 2);
  for (size_t i = 0; i < two_kinds.weights.size(); ++i) {
    const auto& [name, w] = two_kinds.weights[i];
    const double moved = (w - two_kinds.before[i].second).abs().max().item<double>();
    // SGD's first steps are its rate times the gradient, AdamW's are the rate.
    if (name.starts_with("critic."))
      EXPECT_LT(moved, 1e-7) << name;
    else
      EXPECT_GT(moved, 5e-4) << name;
  }
  const Ran still = on_threads<RingGan>(2, config_for<RingGan>({"gan.critic_lr=0"}), 2);
  for (size_t i = 0; i < still.weights.size(); ++i)
    EXPECT_EQ(still.weights[i].second.equal(still.before[i].second),
              still.weights[i].first.starts_with("critic."))
        << still.weights[i].first;
}

TEST(train_program, a_policy_learns_from_what_it_collected) {
  const Config config =
      config_for<BanditProgram>({"train_batch_size=64", "optimizer.type=AdamW",
                                 "optimizer.params.lr=0.02", "optimizer.params.momentum=null"},
                                R"({"gradient_clipping": 1})");
  run_threads(
      2,
      [&](Group g) {
        BanditProgram program;
        Trainer trainer(make_trainer(program, config, g));
        Trainer::Impl& t = trainer.impl();
        const NamedTensors before = weights_in(t);
        for (int i = 0; i < 80; ++i) t.take_step({});
        EXPECT_GT(program.average, 0.8) << "chance is 0.25";
        EXPECT_EQ(t.first().step, 160) << "two updates a step";
        EXPECT_EQ(t.step, 80);
        for (const auto& [name, w] : weights_in(t))
          for (const auto& [other, b] : before)
            if (name == other) {
              EXPECT_EQ(w.equal(b), name.starts_with("start.")) << name;
            }
      },
      std::chrono::seconds(60));
}

TEST(train_program, terms_with_weights_of_their_own_are_means_over_all_ranks) {
  // Two terms; the second counts only rows with an even label.
  struct Terms final : DigitsProgram {
    static at::Tensor even(const MicroBatch& b) { return b.target.remainder(2).eq(0); }
    TermWeights weights(const MicroBatch& b) override {
      return {{"all", static_cast<double>(b.weight)}, {"even", even(b).sum().item<double>()}};
    }
    LossTerms loss(Network& net, const MicroBatch& b) override {
      namespace F = torch::nn::functional;
      const at::Tensor y = net.run("head", net.run("neck", torch::relu(net.run("body", b.input))));
      const at::Tensor each =
          F::cross_entropy(y, b.target, F::CrossEntropyFuncOptions().reduction(torch::kNone));
      return {{"all", each.sum()}, {"even", (each * even(b)).sum()}};
    }
  };
  const Ran one = on_threads<Terms>(1, config_for<Terms>(), 3);
  const Ran four = on_threads<Terms>(4, config_for<Terms>(), 3);
  EXPECT_LT(relative_distance(four.weights, one.weights), 1e-6);
  for (size_t i = 0; i < 3; ++i)
    EXPECT_NEAR(four.losses[i].at("all"), one.losses[i].at("all"), 1e-5);
  EXPECT_GT(one.losses[0].at("all"), 1.5 * std::log(10)) << "both means are in it";
}

namespace {

std::string write_script(const PrivateFolder& folder) {
  torch::jit::Module m("net");
  torch::manual_seed(3);
  m.register_parameter("w", (torch::randn({784, 10}) * 0.02).set_requires_grad(true), false);
  m.register_parameter("b", torch::zeros({10}).set_requires_grad(true), false);
  m.define("def forward(self, x):\n  return torch.matmul(x.flatten(1), self.w) + self.b\n");
  const std::string file = folder / "net.pt";
  m.save(file);
  return file;
}

std::string script_file;  // of the program that the test makes

struct ScriptProgram final : DigitsProgram {
  Pieces make(const Config&) override { return {script_piece("script", script_file)}; }
  LossTerms loss(Network& net, const MicroBatch& b) override {
    return {{"loss", cross_entropy_sum(net.run("script", b.input), b.target)}};
  }
};

}  // namespace

TEST(train_program, a_torchscript_module_trains_at_every_stage) {
  PrivateFolder folder;
  script_file = write_script(folder);
  const Ran one =
      on_threads<ScriptProgram>(1, config_for<ScriptProgram>({"optimizer.params.lr=0.001"}), 30);
  EXPECT_EQ(one.weights[0].first, "script.w");
  EXPECT_NEAR(one.losses[0].at("all"), std::log(10), 0.3);
  EXPECT_LT(one.losses.back().at("all"), 0.9 * one.losses[0].at("all"));
  for (const int stage : {0, 2, 3}) {
    const Ran two = on_threads<ScriptProgram>(
        2,
        config_for<ScriptProgram>(
            {"optimizer.params.lr=0.001", "zero_optimization.stage=" + std::to_string(stage)}),
        30);
    EXPECT_LT(relative_distance(two.weights, one.weights), 1e-5) << stage;
  }
  EXPECT_TRUE(has(refusal<ScriptProgram>({"training.activation_memory_mb=10"}),
                  "--set: training.activation_memory_mb applies to the built-in models"));
  script_file = folder / "none.pt";
  EXPECT_TRUE(has(refusal<ScriptProgram>({}), "none.pt is not a TorchScript module"));
}

TEST(train_program, a_run_that_is_resumed_ends_with_the_same_bits) {
  for (const int stage : {0, 3}) {
    PrivateFolder folder;
    std::map<std::string, NamedTensors> ends;
    for (const std::string mode : {"whole", "half", "rest"}) {
      const Config config = config_for<RingGan>(
          {"training.steps=" + std::string(mode == "half" ? "3" : "6"),
           "zero_optimization.stage=" + std::to_string(stage), "training.drop_last=true"});
      run_threads(
          2,
          [&](Group g) {
            RingGan program;
            Trainer trainer(make_trainer(program, config, g));
            Trainer::Impl& t = trainer.impl();
            if (mode == "rest") t.load(folder.path(), nullptr);
            start_data(t.first(), config);
            while (t.step < trainer.steps()) t.take_step({});
            if (mode == "half") t.save(folder.path(), {});
            NamedTensors end = weights_in(t);
            if (g.rank() == 0) ends[mode] = std::move(end);
            g.barrier();
          },
          std::chrono::seconds(60));
    }
    EXPECT_EQ(first_difference(ends.at("rest"), ends.at("whole")), "") << stage;
    EXPECT_NE(first_difference(ends.at("half"), ends.at("whole")), "") << stage;
  }
}

TEST(train_program, evaluates_held_out_data_and_writes_metrics_of_each_update) {
  PrivateFolder folder;
  run_threads(2, [&](Group g) {
    DigitsProgram program;
    TrainOptions options;
    options.run_dir = folder / "digits";
    const TrainResult r = train(program, config_for<DigitsProgram>(), g, options);
    EXPECT_EQ(r.steps, 6);
    EXPECT_GT(r.held_out_loss, 0.5);
    EXPECT_LT(r.held_out_loss, 2.6);
  });
  const std::string digits = read_file(folder / "digits/metrics.jsonl");
  EXPECT_TRUE(has(digits, R"("event":"eval","step":6,"held_out_loss":)")) << digits;
  run_threads(2, [&](Group g) {
    RingGan program;
    TrainOptions options;
    options.run_dir = folder / "gan";
    train(program, config_for<RingGan>(), g, options);
  });
  const std::string gan = read_file(folder / "gan/metrics.jsonl");
  for (const char* name : {"critic.loss", "critic.real", "critic.fake", "generator.loss",
                           "critic.lr\":0.004", "generator.lr\":0.05"})
    EXPECT_TRUE(has(gan, std::string("\"") + name)) << name << "\n" << gan;
}

TEST(train_program, what_is_wrong_is_said_in_a_sentence) {
  const auto key = [](const Sets& sets) {
    try {
      config_for<RingGan>(sets);
    } catch (const UsageError& e) {
      return std::string(e.what());
    }
    return std::string();
  };
  EXPECT_TRUE(has(key({"gan.noise=0"}), "gan.noise")) << key({"gan.noise=0"});
  EXPECT_TRUE(has(key({"gan.nose=3"}), "gan.noise")) << key({"gan.nose=3"});
  EXPECT_TRUE(has(refusal<DigitsProgram>({"model.width=12"}),
                  "model.width applies to the built-in models"));
  EXPECT_TRUE(
      has(refusal<BanditProgram>({"training.epochs=2"}), "training.epochs needs training data"));
  EXPECT_TRUE(has(refusal<BanditProgram>({"training.reproducible=true"}), "training.reproducible"));
  EXPECT_TRUE(has(refusal<BanditProgram>({"balance.mode=throughput"}, 2),
                  "balance.mode needs training data"));

  for (const char* set : {"balance.mode=throughput", "comm.tune_buckets=true"})
    EXPECT_TRUE(
        has(refusal<RingGan>({set}, 2), "is for a program with one update, and this one has 2"))
        << set;

  struct Twice final : DigitsProgram {
    Pieces make(const Config&) override {
      return {piece("a", [] { return SmallNet(784, 10); }),
              piece("a", [] { return SmallNet(10, 10); })};
    }
  };
  EXPECT_TRUE(has(refusal<Twice>({}), "two pieces of the program have the path 'a'"));
  struct Inside final : DigitsProgram {
    Pieces make(const Config&) override {
      return {piece("a", [] { return SmallNet(784, 10); }),
              piece("a.b", [] { return SmallNet(10, 10); })};
    }
  };
  EXPECT_TRUE(has(refusal<Inside>({}), "'a.b' is inside piece 'a'"));
  struct Shared final : DigitsProgram {
    SmallNet net{784, 10};
    Pieces make(const Config&) override {
      return {piece("a", [n = net] { return n; }), piece("b", [n = net] { return n; })};
    }
  };
  EXPECT_TRUE(has(refusal<Shared>({}), "pieces 'a' and 'b' share a parameter"));
  struct Unknown final : DigitsProgram {
    std::vector<Update> updates(const Config&) override { return {{"all", {"bodi"}}}; }
  };
  EXPECT_TRUE(has(refusal<Unknown>({}), "'all' has a piece 'bodi', which make() did not make"));
  struct Wrong final : DigitsProgram {
    LossTerms loss(Network& net, const MicroBatch& b) override {
      return {{"loss", net.run("boddy", b.input).sum()}};
    }
  };
  EXPECT_TRUE(
      has(refusal<Wrong>({}), "there is no piece 'boddy': Program::make() made body, neck, head"));
  struct Vector final : DigitsProgram {
    LossTerms loss(Network& net, const MicroBatch& b) override {
      return {{"loss", net.run("body", b.input)}};
    }
  };
  EXPECT_TRUE(has(refusal<Vector>({}), "the term 'loss' is not a scalar"));
  struct Outside final : DigitsProgram {
    void step(Trainer& t) override { t.net().run("body", t.next_batch()[0].input); }
  };
  EXPECT_TRUE(has(refusal<Outside>({}), "piece 'body' was run outside of a loss"));
  struct NoData final : DigitsProgram {
    Sources data(const Config&) override { return {}; }
  };
  EXPECT_TRUE(has(refusal<NoData>({}), "Program::data() returned no training data"));
  struct NoUpdate final : DigitsProgram {
    void step(Trainer& t) override { t.update("every", t.next_batch()); }
  };
  EXPECT_TRUE(has(refusal<NoUpdate>({}), "there is no update 'every'"));
  struct Unweighed final : DigitsProgram {
    TermWeights weights(const MicroBatch&) override { return {{"lost", 1}}; }
  };
  EXPECT_TRUE(has(refusal<Unweighed>({}), "gives no weight for the term 'loss'"));
}

}  // namespace program_test
