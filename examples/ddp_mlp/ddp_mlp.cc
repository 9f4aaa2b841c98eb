// SPDX-License-Identifier: Apache-2.0
// The usual first program of distributed training: a network of 784, 256 and 10 units under
// DistributedDataParallel. In Python's version of it every process says rank = 0, the loader and
// its DistributedSampler are left out, and the device is a GPU; here the launcher says the rank,
// and the data are MNIST's files if you name their folder, else digits that are drawn: no download.
//   trireme run --nproc-per-node 4 ddp_mlp [FOLDER_OF_MNIST]
#include <torch/torch.h>
#include <trireme/trireme.h>

#include <cstdio>
#include <memory>

// 1. The distributed environment: rank and world size are in the variables of the launcher.
trireme::Group setup() { return trireme::init_process_group({.backend = "local"}); }

// 2. A simple model.
struct SimpleModelImpl : torch::nn::Module {
  torch::nn::Sequential layers{register_module(
      "layers", torch::nn::Sequential(torch::nn::Linear(784, 256), torch::nn::ReLU(),
                                      torch::nn::Linear(256, 10)))};
  torch::Tensor forward(const torch::Tensor& x) { return layers->forward(x.flatten(1)); }
};
TORCH_MODULE(SimpleModel);

// 3. Training.
void train(trireme::Group world, std::shared_ptr<const trireme::DataSource> images, int epochs) {
  torch::manual_seed(1);
  SimpleModel model;
  trireme::DistributedDataParallel ddp_model(model, world);

  trireme::SourceDataset dataset(images);
  trireme::DistributedSampler sampler(*dataset.size(), world.size(), world.rank());
  auto train_loader = torch::data::make_data_loader(dataset, sampler, 16);
  torch::optim::SGD optimizer(model->parameters(), torch::optim::SGDOptions(0.01));

  for (int epoch = 0; epoch < epochs; ++epoch) {
    sampler.set_epoch(epoch);  // another order in each epoch
    torch::Tensor total = torch::zeros({1});
    for (auto& [data, target] : *train_loader) {
      optimizer.zero_grad();
      auto output = model->forward(data);
      auto loss = torch::nn::functional::cross_entropy(output, target);
      loss.backward();  // p.grad() is the mean over ranks when it returns
      optimizer.step();
      total += loss.detach() * data.size(0);
    }
    world.all_reduce(total).wait();
    const double samples = static_cast<double>(sampler.num_samples()) * world.size();
    if (world.rank() == 0)
      std::printf("Epoch %d completed, loss %.4f\n", epoch, total.item<double>() / samples);
  }
}

// 4. The launcher starts this program once for each rank.
int main(int argc, char** argv) try {
  auto world = setup();
  train(world,
        argc > 1 ? trireme::open_idx(argv[1], trireme::IdxPart::kTrain)
                 : trireme::make_digits({.count = 1024}),
        10);
  return 0;  // the group's last handle leaves it: no destroy_process_group()
} catch (const trireme::Error& e) {
  std::fprintf(stderr, "%s\n", e.what());
  return 1;
}
