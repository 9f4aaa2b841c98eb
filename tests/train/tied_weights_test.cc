// SPDX-License-Identifier: Apache-2.0
// trireme::initialize around a module that registers tensors under several names.
#include <gtest/gtest.h>
#include <torch/nn/utils/clip_grad.h>
#include <torch/optim/adamw.h>
#include <torch/optim/sgd.h>

#include "tests/grad/tied_net.h"
#include "tests/support/refusals.h"
#include "trireme/base/file.h"
#include "trireme/checkpoint/safetensors.h"
#include "trireme/checkpoint/writer.h"
#include "trireme/train/engine.h"

namespace tied_weights_test {

using namespace trireme;
using namespace trireme::testing;

namespace {

constexpr int kSteps = 4;
constexpr int64_t kRows = 16;

constexpr const char* kSgd = R"({"type": "SGD", "params": {"lr": 0.05, "momentum": 0.9}})";
constexpr const char* kAdam =
    R"({"type": "Adam", "params": {"lr": 0.01, "weight_decay": 0.1, "no_decay": ["emb.*"]}})";

Config ds_config(const std::string& optimizer, const std::string& more = "") {
  return Config::from_text("ds_config.json", R"({
    "train_batch_size": 16, "comm": {"bucket_mb": 0.0005},
    "gradient_clipping": 1.0, "optimizer": )" + optimizer +
                                                 more + "}");
}

at::Tensor loss_of(const at::Tensor& y) { return y.to(at::kFloat).pow(2).sum(1).mean(); }

// Each tensor once, with gradients clipped; 'head' is the first name of 'emb.weight'.
TiedNet serial(bool adam, std::vector<double>& norms) {
  TiedNet net = tied_net(1, true, at::kFloat);
  std::vector<at::Tensor> decayed = each_once(*net);
  std::vector<at::Tensor> all = decayed, head = {decayed[0]};
  decayed.erase(decayed.begin());
  std::unique_ptr<torch::optim::Optimizer> optimizer;
  if (adam) {
    std::vector<torch::optim::OptimizerParamGroup> groups;
    groups.emplace_back(decayed, std::make_unique<torch::optim::AdamWOptions>(
                                     torch::optim::AdamWOptions(0.01).weight_decay(0.1)));
    groups.emplace_back(head, std::make_unique<torch::optim::AdamWOptions>(
                                  torch::optim::AdamWOptions(0.01).weight_decay(0)));
    optimizer = std::make_unique<torch::optim::AdamW>(groups, torch::optim::AdamWOptions(0.01));
  } else {
    optimizer =
        std::make_unique<torch::optim::SGD>(all, torch::optim::SGDOptions(0.05).momentum(0.9));
  }
  for (int step = 0; step < kSteps; ++step) {
    optimizer->zero_grad();
    loss_of(net->forward(tokens(kRows, step))).backward();
    norms.push_back(torch::nn::utils::clip_grad_norm_(all, 1.0));
    optimizer->step();
  }
  return net;
}

void steps_of(Engine& engine, const Group& g, int from, int to,
              const std::function<void(int)>& after = {}) {
  for (int step = from; step < to; ++step) {
    const at::Tensor mine = rows_of(tokens(kRows, step), g);
    const int64_t micro = engine.gradient_accumulation_steps(), rows = mine.size(0) / micro;
    for (int64_t m = 0; m < micro; ++m) {
      engine.backward(loss_of(engine.forward(mine.narrow(0, m * rows, rows))));
      engine.step();
    }
    if (after) after(step);
  }
}

}  // namespace

TEST(train_tied_weights, an_engine_trains_them_as_over_the_whole_batch) {
  for (bool adam : {false, true}) {
    std::vector<double> norms;
    TiedNet want = serial(adam, norms);
    for (int stage : {0, 1, 2})
      for (int accumulation : {1, 2})
        for (int n : {2, 4})
          run_threads(n, [&](Group g) {
            TiedNet net = tied_net(static_cast<uint64_t>(g.rank()) + 1, true, at::kFloat);
            const std::string where =
                fmt::format("{}, stage {}, accumulation {}, {} ranks: ", adam ? "Adam" : "SGD",
                            stage, accumulation, n);
            Engine engine = initialize(
                net,
                ds_config(adam ? kAdam : kSgd, fmt::format(R"(, "gradient_accumulation_steps": {},
                                         "zero_optimization": {{"stage": {}}})",
                                                           accumulation, stage)),
                g);
            steps_of(engine, g, 0, kSteps, [&](int step) {
              const double norm = engine.get_global_grad_norm();
              expect(std::abs(norm / norms[static_cast<size_t>(step)] - 1) < 1e-4,
                     where + "norm " + std::to_string(norm));
            });
            expect_tied_as(net, want, 2e-5, where);
          });
  }
}

TEST(train_tied_weights, in_half_precision_are_one_and_train) {
  for (const char* precision :
       {R"(, "bf16": {"enabled": true})", R"(, "fp16": {"enabled": true, "emulate": true})"})
    for (int stage : {0, 2})
      run_threads(2, [&](Group g) {
        TiedNet net = tied_net(1, true, at::kFloat);
        Engine engine = initialize(
            net,
            ds_config(kSgd,
                      fmt::format(R"({}, "zero_optimization": {{"stage": {}}})", precision, stage)),
            g);
        steps_of(engine, g, 0, 1);
        const double first = engine.loss();
        for (int i = 0; i < 12; ++i) steps_of(engine, g, 0, 1);
        expect(engine.loss() < 0.8 * first, "loss " + std::to_string(engine.loss()));
        expect(net->head.is_same(net->emb->weight), "tied");
      });
}

TEST(train_tied_weights, a_checkpoint_has_them_once_and_goes_on_with_the_same_bits) {
  for (int stage : {0, 2}) {
    PrivateFolder folder;
    const Config config =
        ds_config(kAdam, fmt::format(R"(, "zero_optimization": {{"stage": {}}})", stage));
    run_threads(2, [&](Group g) {
      TiedNet whole = tied_net(1, true, at::kFloat), halves = tied_net(2, true, at::kFloat);
      {
        Engine engine = initialize(whole, config, g);
        steps_of(engine, g, 0, 2);
        engine.save_checkpoint(folder.path());
        steps_of(engine, g, 2, 4);
      }
      const SafetensorsFile file(folder.path() + "/step-00000002/model.safetensors");
      expect(file.find("head") && !file.find("emb.weight") && !file.find("again.bias"), "once");
      Engine engine = initialize(halves, config, g);
      expect(engine.load_checkpoint(folder.path()) == 2, "at step 2");
      steps_of(engine, g, 2, 4);
      expect_tied_as(halves, whole, 0);
    });
  }
}

// What an older version wrote: everything under every name, as of a model that is not tied but
// whose copies are equal.
TEST(train_tied_weights, a_checkpoint_under_both_names_loads) {
  PrivateFolder folder;
  run_threads(2, [&](Group g) {
    TiedNet untied = tied_net(1, false, at::kFloat), net = tied_net(2, true, at::kFloat),
            want = tied_net(1, true, at::kFloat);
    {
      at::NoGradGuard no_grad;
      untied->again->weight.copy_(untied->first->weight);
      untied->again->bias.copy_(untied->first->bias);
      for (const auto& p : want->named_parameters())
        p.value().copy_(untied->named_parameters()[p.key()]);
    }
    Engine old = initialize(untied, ds_config(kAdam), g);
    old.save_checkpoint(folder.path());
    Engine engine = initialize(net, ds_config(kAdam), g);
    engine.load_checkpoint(folder.path());
    expect_tied_as(net, want, 0);
    // Trained apart, they are no longer one.
    steps_of(old, g, 0, 1);
    old.save_checkpoint(folder.path());
    std::string said;
    try {
      engine.load_checkpoint(folder.path());
    } catch (const UsageError& e) {
      said = e.what();
    }
    expect(has(said, "have different values there, and are one tensor here"), said);
  });
}

TEST(train_tied_weights, ranks_that_tie_differently_are_told_which_name) {
  for (const auto& s : what_ranks_throw(2, [](Group g) {
         TiedNet net = tied_net(1, g.rank() == 0, at::kFloat);
         initialize(net, ds_config(kSgd), g);
       }))
    EXPECT_TRUE(has(s, "Mismatch") && has(s, "also named")) << s;
}

}  // namespace tied_weights_test
