// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/nn/functional/activation.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/linear.h>
#include <torch/types.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "trireme/data/sources/digits.h"
#include "trireme/layers/dropout.h"
#include "trireme/train/trainer.h"

// Programs of a user's own for the tests: what people train that is not one module with one loss.
namespace trireme::testing {

struct SmallNetImpl : torch::nn::Module {
  explicit SmallNetImpl(int64_t in, int64_t out, int64_t width = 16)
      : up(register_module("up", torch::nn::Linear(in, width))),
        down(register_module("down", torch::nn::Linear(width, out))) {}
  at::Tensor forward(const at::Tensor& x) { return down(torch::relu(up(x.flatten(1)))); }
  torch::nn::Linear up, down;
};
TORCH_MODULE(SmallNet);

inline at::Tensor cross_entropy_sum(const at::Tensor& logits, const at::Tensor& target) {
  namespace F = torch::nn::functional;
  return F::cross_entropy(logits, target, F::CrossEntropyFuncOptions().reduction(torch::kSum));
}

/// Digits by a chain of pieces.
struct DigitsProgram : Program {
  Pieces make(const Config&) override {
    return {piece("body", [] { return SmallNet(784, 32); }),
            piece("neck", [] { return SmallNet(32, 32); }),
            piece("head", [] { return SmallNet(32, 10); })};
  }
  Sources data(const Config&) override {
    return {make_digits({256, 42, "train"}), make_digits({50, 42, "validation"}), "digits 256"};
  }
  LossTerms loss(Network& net, const MicroBatch& b) override {
    const at::Tensor x = torch::relu(net.run("body", b.input));
    return {{"loss", cross_entropy_sum(net.run("head", net.run("neck", x)), b.target)}};
  }
};

/// Points on a ring, generated from noise: two updates a step, each with a rate of its own.
struct RingGan : Program {
  struct Section {
    double critic_lr = 4e-3;
    int64_t noise = 4;
    void fields(Fields& f) {
      f.field({.path = "gan.critic_lr", .min = 0, .max = 1, .help = "learning rate of the critic"},
              critic_lr);
      f.field({.path = "gan.noise", .min = 1, .max = 64, .help = "dims of the noise"}, noise);
    }
  };
  struct Ring final : DataSource {
    int64_t size() const override { return 512; }
    MicroBatch get(const std::vector<int64_t>& ids) const override {
      MicroBatch b;
      b.input = torch::empty({static_cast<int64_t>(ids.size()), 2});
      auto* p = b.input.data_ptr<float>();
      for (size_t i = 0; i < ids.size(); ++i) {
        const double angle = 2 * M_PI * static_cast<double>(ids[i]) / 512;
        p[2 * i] = static_cast<float>(std::cos(angle)),
              p[2 * i + 1] = static_cast<float>(std::sin(angle));
      }
      b.samples = ids;
      b.weight = static_cast<int64_t>(ids.size());
      return b;
    }
    std::string describe() const override { return "a ring of 512 points"; }
  };

  void keys(KeyTable& table) override { table.add<Section>(); }
  Pieces make(const Config& config) override {
    const int64_t noise = config.section<Section>().noise;
    return {piece("generator", [noise] { return SmallNet(noise, 2); }),
            piece("critic", [] { return SmallNet(2, 1); })};
  }
  std::vector<Update> updates(const Config& config) override {
    const double lr = config.section<Section>().critic_lr;
    return {{"critic", {"critic"}, {set_key("optimizer.params.lr", lr)}},
            {"generator", {"generator"}}};
  }
  Sources data(const Config&) override { return {std::make_shared<Ring>(), nullptr, "ring 512"}; }
  static at::Tensor score(const at::Tensor& logits, bool real) {
    const at::Tensor target = torch::full_like(logits, real ? 1. : 0.);
    return torch::binary_cross_entropy_with_logits(logits, target, {}, {}, at::Reduction::Sum);
  }
  LossTerms loss(Network& net, const MicroBatch& b) override {  // of the critic
    const at::Tensor fake = net.run("generator", b.tensor("noise"));
    return {{"real", score(net.run("critic", b.input), true)},
            {"fake", score(net.run("critic", fake.detach()), false)}};
  }
  void step(Trainer& t) override {
    Batch batch = t.next_batch();
    for (MicroBatch& b : batch)
      b.more = {{"noise", torch::randn({b.input.size(0), t.config().section<Section>().noise},
                                       t.generator())}};
    t.update("critic", batch);
    t.update("generator", batch, [](Network& net, const MicroBatch& b) -> LossTerms {
      return {{"fooled", score(net.run("critic", net.run("generator", b.tensor("noise"))), true)}};
    });
  }
};

/// A bandit whose best arm depends on what it sees: collect, then two updates on what was
/// collected. The entropy is a second term, over another number than the first.
struct BanditProgram : Program {
  static constexpr int64_t kArms = 4, kPlays = 32;
  double average = 0;  // of the reward, the same on every rank

  Pieces make(const Config&) override {
    return {piece("policy", [] { return SmallNet(kArms, kArms); }),
            piece("start", [] { return SmallNet(kArms, kArms); })};  // never trained
  }
  std::vector<Update> updates(const Config&) override { return {{"policy", {"policy"}}}; }
  TermWeights weights(const MicroBatch& b) override {
    return {{"reward", static_cast<double>(b.weight)}, {"entropy", 2. * b.weight}};
  }
  LossTerms loss(Network& net, const MicroBatch& b) override {
    const at::Tensor log = torch::log_softmax(net.run("policy", b.input), 1);
    const at::Tensor taken = log.gather(1, b.target.unsqueeze(1)).squeeze(1);
    return {{"reward", -(taken * b.tensor("advantage")).sum()},
            {"entropy", 0.01 * (log.exp() * log).sum()}};
  }
  void step(Trainer& t) override {
    MicroBatch b;
    double sum = 0;
    {
      at::NoGradGuard no_grad;
      const at::Tensor best = torch::randint(kArms, {kPlays}, t.generator());
      b.input = torch::one_hot(best, kArms).to(torch::kFloat);
      b.target = torch::multinomial(torch::softmax(t.net().run("policy", b.input), 1), 1, false,
                                    t.generator())
                     .squeeze(1);
      const at::Tensor reward = b.target.eq(best).to(torch::kFloat);
      sum = reward.sum().item<double>();
      b.more = {{"advantage", reward - average}};
    }
    for (int64_t i = 0; i < kPlays; ++i) b.samples.push_back(t.group().rank() * kPlays + i);
    b.weight = kPlays;
    for (int k = 0; k < 2; ++k) t.update("policy", {b});
    at::Tensor all = torch::tensor({sum}, torch::kDouble);
    t.group().all_reduce(all).wait();
    average =
        0.9 * average + 0.1 * all.item<double>() / static_cast<double>(kPlays * t.group().size());
  }
  void state(StateVisitor& v) override { v.value("average", average); }
};

}  // namespace trireme::testing
