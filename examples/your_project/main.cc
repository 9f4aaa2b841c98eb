// SPDX-License-Identifier: Apache-2.0
// A training loop as LibTorch's users write it, and what makes it distributed: init_process_group,
// DistributedSampler, DistributedDataParallel. The same program runs alone, under `trireme run`,
// mpirun and srun.
#include <torch/torch.h>
#include <trireme/trireme.h>

#include <cmath>
#include <cstdio>

// Points of the plane; the class is the quadrant.
struct Quadrants : torch::data::datasets::Dataset<Quadrants> {
  torch::Tensor points = torch::rand({4096, 2}) * 2 - 1;

  torch::data::Example<> get(size_t index) override {
    auto point = points[static_cast<int64_t>(index)];
    const bool right = point[0].item<float>() > 0, up = point[1].item<float>() > 0;
    return {point, torch::tensor((up ? 2 : 0) + (right ? 1 : 0))};
  }
  torch::optional<size_t> size() const override { return points.size(0); }
};

struct NetImpl : torch::nn::Module {
  torch::nn::Linear in{register_module("in", torch::nn::Linear(2, 32))};
  torch::nn::Linear out{register_module("out", torch::nn::Linear(32, 4))};
  torch::Tensor forward(const torch::Tensor& x) { return out(torch::relu(in(x))); }
};
TORCH_MODULE(Net);

int main() try {
  auto world =
      trireme::init_process_group();  // who am I: the variables of whoever started this process
  torch::manual_seed(7);              // every rank sees the same data set

  Net net;
  trireme::DistributedDataParallel ddp(net, world);  // broadcast weights, hook every parameter
  torch::optim::SGD optimizer(net->parameters(), torch::optim::SGDOptions(0.2).momentum(0.9));

  auto dataset = Quadrants().map(torch::data::transforms::Stack<>());
  trireme::DistributedSampler sampler(*dataset.size(), world.size(),
                                      world.rank());  // this rank's share of each epoch
  auto loader = torch::data::make_data_loader(std::move(dataset), sampler, 64);

  torch::Tensor loss;
  for (int epoch = 0; epoch < 5; ++epoch) {
    for (auto& batch : *loader) {
      optimizer.zero_grad();
      loss = torch::nn::functional::cross_entropy(net->forward(batch.data), batch.target);
      loss.backward();   // buckets reduce while backward runs
      optimizer.step();  // every rank holds the same weights
    }
  }

  auto mean = loss.detach().clone();
  world.all_reduce(mean, trireme::ReduceOp::avg).wait();
  if (world.rank() == 0) std::printf("%d ranks, loss %.4f\n", world.size(), mean.item<double>());
  return std::isfinite(mean.item<double>()) ? 0 : 1;
} catch (const trireme::Error& e) {
  std::fprintf(stderr, "%s\n", e.what());
  return 1;
}
