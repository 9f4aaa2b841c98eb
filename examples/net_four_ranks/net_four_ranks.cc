// SPDX-License-Identifier: Apache-2.0
// A training program that goes round in articles on torch.distributed: a small convolutional
// network on 4 ranks, SGD with momentum, gradients clipped to a norm of 10, a line each 100 steps.
// As it is printed there it cannot run. What is mended:
//   - fc1 took 320 features and gets 2000: one pool, after the second convolution, leaves 20·10·10;
//   - the model was never wrapped, so every rank trained a model of its own;
//   - train_loader was not defined: here each rank reads its part of the samples;
//   - optimizer = optimizer.SGD(…) used a name before it had a value, os was not imported, and an
//     optimizer has no to(rank);
//   - outputs went through log_softmax twice (CrossEntropyLoss has its own): here the loss is
//     nll_loss, the same number;
//   - steps were counted within an epoch, their total over all epochs: both are over all epochs.
//   trireme run --nproc-per-node 4 net_four_ranks [FOLDER_OF_MNIST]
#include <torch/torch.h>
#include <trireme/trireme.h>

#include <cinttypes>
#include <cstdio>

struct NetImpl : torch::nn::Module {
  torch::nn::Conv2d conv1{register_module("conv1", torch::nn::Conv2d(1, 20, 5))};
  torch::nn::Conv2d conv2{register_module("conv2", torch::nn::Conv2d(20, 20, 5))};
  torch::nn::Linear fc1{register_module("fc1", torch::nn::Linear(2000, 50))};
  torch::nn::Linear fc2{register_module("fc2", torch::nn::Linear(50, 10))};
  torch::Tensor forward(torch::Tensor x) {
    x = torch::relu(conv1(x));
    x = torch::relu(conv2(x));
    x = torch::max_pool2d(x, 2);
    x = torch::flatten(x, 1);
    x = torch::relu(fc1(x));
    return torch::log_softmax(fc2(x), 1);
  }
};
TORCH_MODULE(Net);

void train(trireme::Group world, trireme::SourceDataset images, int n_epochs) {
  torch::manual_seed(1);
  Net model;
  trireme::DistributedDataParallel ddp(model, world);
  torch::optim::SGD optimizer(model->parameters(), torch::optim::SGDOptions(0.01).momentum(0.9));

  trireme::DistributedSampler sampler(*images.size(), world.size(), world.rank());
  const int64_t batch = 4,
                steps = (static_cast<int64_t>(sampler.num_samples()) + batch - 1) / batch;
  auto train_loader = torch::data::make_data_loader(images, sampler, batch);
  const int64_t total_step = steps * n_epochs;
  int64_t step = 0;
  for (int epoch = 0; epoch < n_epochs; ++epoch) {
    model->train();
    for (auto& [inputs, labels] : *train_loader) {
      optimizer.zero_grad();
      auto outputs = model->forward(inputs);
      auto loss = torch::nll_loss(outputs, labels);
      loss.backward();
      trireme::clip_grad_norm_(model->parameters(), 10);  // of the mean: the same on every rank
      optimizer.step();
      if (++step % 100 == 0) {
        std::printf("[%d %" PRId64 "/%" PRId64 "] loss: %.3f\n", world.rank(), step, total_step,
                    loss.item<double>());
      }
    }
  }
}

int main(int argc, char** argv) try {
  auto world = trireme::init_process_group();  // env://: rank and world size from the launcher
  train(world,
        trireme::SourceDataset(argc > 1 ? trireme::open_idx(argv[1], trireme::IdxPart::kTrain)
                                        : trireme::make_digits({.count = 320})),
        10);
  return 0;
} catch (const trireme::Error& e) {
  std::fprintf(stderr, "%s\n", e.what());
  return 1;
}
