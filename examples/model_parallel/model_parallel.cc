// SPDX-License-Identifier: Apache-2.0
// A network of two parts on two ranks. Naively, in lines of one's own: the first part computes
// while the second waits, and the other way round. Then as a pipeline: four micro-batches, one
// behind another, so that both compute at the same time. Alone, it trains the whole network in one
// process. The losses are the same three times.
//   trireme run --nproc-per-node 2 model_parallel [SCHEDULE]
#include <torch/torch.h>
#include <trireme/trireme.h>

#include <cstdio>
#include <string>

using Tensors = std::vector<torch::Tensor>;
constexpr int kSteps = 5, kRows = 32, kMicroBatches = 4;

torch::nn::Sequential part(int number) {
  torch::manual_seed(number);  // the same weights, wherever the part is
  if (number == 0) return torch::nn::Sequential(torch::nn::Linear(784, 64), torch::nn::ReLU());
  return torch::nn::Sequential(torch::nn::Linear(64, 10));
}

trireme::MicroBatch batch_of(int step, int first, int rows) {
  static const auto digits = trireme::make_digits();
  std::vector<int64_t> ids;
  for (int i = 0; i < rows; ++i) ids.push_back(step * kRows + first + i);
  auto batch = digits->get(ids);
  batch.input = batch.input.flatten(1);
  return batch;
}

void print(const char* how, int step, double loss) {
  std::printf("%s: step %d, loss %.5f\n", how, step + 1, loss);
}

void whole() {
  torch::nn::Sequential first = part(0), second = part(1);
  auto parameters = first->parameters();
  for (auto& p : second->parameters()) parameters.push_back(p);
  torch::optim::SGD optimizer(parameters, 0.1);
  for (int step = 0; step < kSteps; ++step) {
    const auto batch = batch_of(step, 0, kRows);
    optimizer.zero_grad();
    auto loss = torch::nn::functional::cross_entropy(second->forward(first->forward(batch.input)),
                                                     batch.target);
    loss.backward();
    optimizer.step();
    print("whole", step, loss.item<double>());
  }
}

void naive(trireme::Group world) {
  auto mine = part(world.rank());
  torch::optim::SGD optimizer(mine->parameters(), 0.1);
  for (int step = 0; step < kSteps; ++step) {
    const auto batch = batch_of(step, 0, kRows);
    auto hidden = torch::empty({kRows, 64}), gradient = torch::empty({kRows, 64});
    optimizer.zero_grad();
    if (world.rank() == 0) {
      hidden = mine->forward(batch.input);
      world.send(hidden.detach(), 1).wait();
      world.recv(gradient, 1).wait();  // idle, until the other part has done all of its work
      hidden.backward(gradient);
    } else {
      world.recv(hidden, 0).wait();
      auto loss = torch::nn::functional::cross_entropy(mine->forward(hidden.requires_grad_()),
                                                       batch.target);
      loss.backward();
      world.send(hidden.grad(), 0).wait();
      print("naive", step, loss.item<double>());
    }
    optimizer.step();
  }
}

void pipeline(trireme::Group world, const std::string& schedule) {
  auto mine = part(world.rank());
  torch::optim::SGD optimizer(mine->parameters(), 0.1);
  trireme::Pipeline pipeline(
      world,
      trireme::pipeline::generate_schedule(schedule, {.ranks = 2, .micro_batches = kMicroBatches}),
      {{world.rank(), [&](const Tensors& in, int) { return Tensors{mine->forward(in[0])}; }}});
  constexpr int kEach = kRows / kMicroBatches;
  for (int step = 0; step < kSteps; ++step) {
    optimizer.zero_grad();
    const Tensors losses =
        pipeline.step([&](int i) { return Tensors{batch_of(step, i * kEach, kEach).input}; },
                      [&](const Tensors& out, int i) {
                        return torch::nn::functional::cross_entropy(
                                   out[0], batch_of(step, i * kEach, kEach).target) /
                               kMicroBatches;  // so that they add up to a mean
                      });
    optimizer.step();
    if (!losses.empty()) print("pipeline", step, torch::stack(losses).sum().item<double>());
  }
}

int main(int argc, char** argv) try {
  auto world = trireme::init_process_group();
  if (world.size() == 1) return whole(), 0;
  if (world.size() != 2)
    throw trireme::UsageError("the network has two parts: start 2 ranks, or 1");
  naive(world);
  pipeline(world, argc > 1 ? argv[1] : "1f1b");
  return 0;
} catch (const trireme::Error& e) {
  std::fprintf(stderr, "%s\n", e.what());
  return 1;
}
