// SPDX-License-Identifier: Apache-2.0
// A generator learns to put points on a ring, and a critic to tell them from real ones: two updates
// in each step, each with an optimizer of its own.
//   ./gan gan.json --nproc-per-node 2 --set zero_optimization.stage=2 --set gan.critic_lr=0.002
#include <torch/nn/modules/linear.h>
#include <torch/types.h>
#include <trireme/trireme.h>

using namespace trireme;

struct NetImpl : torch::nn::Module {
  NetImpl(int64_t in, int64_t out) {
    up = register_module("up", torch::nn::Linear(in, 64));
    down = register_module("down", torch::nn::Linear(64, out));
  }
  at::Tensor forward(const at::Tensor& x) { return down(torch::leaky_relu(up(x), 0.2)); }
  torch::nn::Linear up{nullptr}, down{nullptr};
};
TORCH_MODULE(Net);

struct Ring : DataSource {  // samples by number
  int64_t size() const override { return 4096; }
  std::string describe() const override { return "4096 points on a ring"; }
  MicroBatch get(const std::vector<int64_t>& ids) const override {
    const at::Tensor angle = torch::tensor(ids, torch::kFloat) * (2 * M_PI / 4096);
    MicroBatch batch;
    batch.input = torch::stack({angle.cos(), angle.sin()}, 1);
    batch.weight = static_cast<int64_t>(ids.size());
    batch.samples = ids;
    return batch;
  }
};

struct GanSection {  // keys of your own, checked like all others
  double critic_lr = 1e-3;
  int64_t noise = 8;
  void fields(Fields& f) {
    f.field({.path = "gan.critic_lr", .min = 0, .help = "learning rate of the critic"}, critic_lr);
    f.field({.path = "gan.noise", .min = 1, .help = "inputs of the generator"}, noise);
  }
};

at::Tensor score(const at::Tensor& logits, double wanted) {
  const at::Tensor target = torch::full_like(logits, wanted);
  return torch::binary_cross_entropy_with_logits(logits, target, {}, {}, at::Reduction::Sum);
}

struct Gan : Program {
  void keys(KeyTable& table) override { table.add<GanSection>(); }
  Sources data(const Config&) override { return {std::make_shared<Ring>(), nullptr, "ring 4096"}; }
  Pieces make(const Config& config) override {
    const int64_t noise = config.section<GanSection>().noise;
    return {piece("generator", [noise] { return Net(noise, 2); }),
            piece("critic", [] { return Net(2, 1); })};
  }
  std::vector<Update> updates(const Config& config) override {
    const double lr = config.section<GanSection>().critic_lr;
    return {{"critic", {"critic"}, {set_key("optimizer.params.lr", lr)}},
            {"generator", {"generator"}}};
  }
  LossTerms loss(Network& net,
                 const MicroBatch& batch) override {  // of the critic: sums, not means
    const at::Tensor fake = net.run("generator", batch.tensor("noise")).detach();
    return {{"real", score(net.run("critic", batch.input), 1)},
            {"fake", score(net.run("critic", fake), 0)}};
  }
  static LossTerms fool(Network& net, const MicroBatch& batch) {
    return {{"fool", score(net.run("critic", net.run("generator", batch.tensor("noise"))), 1)}};
  }
  void step(Trainer& trainer) override {
    const int64_t noise = trainer.config().section<GanSection>().noise;
    Batch batch = trainer.next_batch();
    for (MicroBatch& b : batch)
      b.more = {{"noise", torch::randn({b.input.size(0), noise}, trainer.generator())}};
    trainer.update("critic", batch);
    trainer.update("generator", batch, fool);
  }
};

int main(int argc, char** argv) { return train_main<Gan>(argc, argv); }
