// SPDX-License-Identifier: Apache-2.0
// DeepSpeed's way to train: a module, a ds_config.json, an engine. The network, Adam, fp16 and ZeRO
// stage 2 are those of the usual first example; on a CPU, LibTorch computes no float16, so the
// configuration asks for fp16.emulate.
//   trireme run --nproc-per-node 2 deepspeed_style [ds_config.json]
#include <torch/torch.h>
#include <trireme/trireme.h>

#include <cmath>
#include <cstdio>

struct SimpleModelImpl : torch::nn::Module {
  SimpleModelImpl() {
    layers = register_module("layers",
                             torch::nn::Sequential(torch::nn::Linear(784, 1024), torch::nn::ReLU(),
                                                   torch::nn::Linear(1024, 1024), torch::nn::ReLU(),
                                                   torch::nn::Linear(1024, 10)));
  }
  torch::Tensor forward(const torch::Tensor& x) { return layers->forward(x); }
  torch::nn::Sequential layers{nullptr};
};
TORCH_MODULE(SimpleModel);

const char kConfig[] = R"({
  "train_micro_batch_size_per_gpu": 32,
  "optimizer": {"type": "Adam", "params": {"lr": 0.001}},
  "fp16": {"enabled": true, "emulate": true, "initial_scale_power": 8},
  "zero_optimization": {"stage": 2}   // optimizer state and gradients
})";

int main(int argc, char** argv) try {
  auto world = trireme::init_process_group();
  torch::manual_seed(7);
  SimpleModel model;
  auto engine =
      argc > 1 ? trireme::initialize(model, std::string(argv[1]), world)
               : trireme::initialize(model, trireme::Config::from_text("kConfig", kConfig), world);

  // Each class is a direction in 784 dimensions, with noise.
  const auto directions = torch::randn({10, 784});
  torch::manual_seed(100 + world.rank());
  double first = 0;
  for (int step = 0; step < 40; ++step) {
    const auto labels = torch::randint(10, {engine.train_micro_batch_size_per_gpu()});
    const auto data =
        directions.index_select(0, labels) + 0.5 * torch::randn({labels.size(0), 784});
    auto outputs = engine.forward(data);
    auto loss = torch::nn::functional::cross_entropy(outputs, labels);
    engine.backward(loss);
    engine.step();
    if (step == 0) first = engine.loss();
  }
  if (world.rank() == 0)
    std::printf("%d ranks, loss %.4f -> %.4f, loss scale %g\n", world.size(), first, engine.loss(),
                engine.loss_scale());
  return engine.loss() < first ? 0 : 1;
} catch (const trireme::Error& e) {
  std::fprintf(stderr, "%s\n", e.what());
  return 1;
}
