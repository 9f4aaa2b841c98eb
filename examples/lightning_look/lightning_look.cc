// SPDX-License-Identifier: Apache-2.0
// How PyTorch Lightning's users know the start of a job: who is there, on which backend, and a
// table of the network, here that of PyTorch's MNIST example with 1,199,882 parameters. Two words
// are those of this job: the backend, and the GPUs that CUDA_VISIBLE_DEVICES leaves it.
//   trireme run --nproc-per-node 3 lightning_look [FOLDER_OF_MNIST]
#include <torch/torch.h>
#include <trireme/trireme.h>

#include <cstdio>
#include <cstdlib>
#include <string>

struct NetImpl : torch::nn::Module {
  torch::nn::Conv2d conv1{register_module("conv1", torch::nn::Conv2d(1, 32, 3))};
  torch::nn::Conv2d conv2{register_module("conv2", torch::nn::Conv2d(32, 64, 3))};
  torch::nn::Dropout dropout1{register_module("dropout1", torch::nn::Dropout(0.25))};
  torch::nn::Dropout dropout2{register_module("dropout2", torch::nn::Dropout(0.5))};
  torch::nn::Linear fc1{register_module("fc1", torch::nn::Linear(9216, 128))};
  torch::nn::Linear fc2{register_module("fc2", torch::nn::Linear(128, 10))};
  torch::Tensor forward(torch::Tensor x) {
    x = torch::max_pool2d(torch::relu(conv2(torch::relu(conv1(x)))), 2);
    x = torch::relu(fc1(torch::flatten(dropout1(x), 1)));
    return torch::log_softmax(fc2(dropout2(x)), 1);
  }
};
TORCH_MODULE(Net);

const char* variable(const char* name, const char* otherwise) {
  const char* value = std::getenv(name);
  return value ? value : otherwise;
}

void say_who_is_there(const trireme::Group& world, const torch::nn::Module& net) {
  const std::string rule(100, '-');
  std::printf("Initializing distributed: GLOBAL_RANK: %d, MEMBER: %d/%d\n", world.rank(),
              world.rank() + 1, world.size());
  if (world.rank() == 0)
    std::printf(
        "%s\ndistributed_backend=%s\n"
        "All distributed processes registered. Starting with %d processes\n%s\n\n",
        rule.c_str(), world.backend().c_str(), world.size(), rule.c_str());
  std::printf("LOCAL_RANK: %s - CUDA_VISIBLE_DEVICES: [%s]\n", variable("LOCAL_RANK", "0"),
              variable("CUDA_VISIBLE_DEVICES", ""));
  if (world.rank() == 0) std::printf("\n%s\n", trireme::module_summary(net).c_str());
  std::fflush(stdout);
}

void fit(trireme::Group world, Net net, trireme::SourceDataset images) {
  trireme::DistributedDataParallel ddp(net, world);
  torch::optim::Adam optimizer(net->parameters(), torch::optim::AdamOptions(1e-3));
  trireme::DistributedSampler sampler(*images.size(), world.size(), world.rank());
  auto loader = torch::data::make_data_loader(images, sampler, 8);
  torch::Tensor loss;
  for (auto& [data, target] : *loader) {
    optimizer.zero_grad();
    loss = torch::nll_loss(net->forward(data), target);
    loss.backward();
    optimizer.step();
  }
  world.all_reduce(loss.detach(), trireme::ReduceOp::avg).wait();
  if (world.rank() == 0) std::printf("\nEpoch 0: loss=%.3f\n", loss.item<double>());
}

int main(int argc, char** argv) try {
  auto world = trireme::init_process_group();
  torch::manual_seed(1);
  Net net;
  say_who_is_there(world, *net);
  fit(world, net,
      trireme::SourceDataset(argc > 1 ? trireme::open_idx(argv[1], trireme::IdxPart::kTrain)
                                      : trireme::make_digits({.count = 240})));
  return 0;
} catch (const trireme::Error& e) {
  std::fprintf(stderr, "%s\n", e.what());
  return 1;
}
