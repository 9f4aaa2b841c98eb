// SPDX-License-Identifier: Apache-2.0
// DeepSpeed's usual first example: a network of 784, 1024, 1024 and 10 units, Adam, fp16 and ZeRO
// stage 2, all of which ds_config.json beside this file says. There, train_batch_size is
// 32 × torch.cuda.device_count(); JSON has no such calls, so it is 128, for 4 ranks. Its one other
// change: a CPU's LibTorch 1.13 computes no float16, hence fp16.emulate; take it out on a GPU.
//   trireme run --nproc-per-node 4 deepspeed_mlp ds_config.json [FOLDER_OF_MNIST]
#include <torch/torch.h>
#include <trireme/trireme.h>

#include <cstdio>
#include <memory>
#include <string>

struct SimpleModelImpl : torch::nn::Module {
  torch::nn::Sequential layers{register_module(
      "layers", torch::nn::Sequential(torch::nn::Linear(784, 1024), torch::nn::ReLU(),
                                      torch::nn::Linear(1024, 1024), torch::nn::ReLU(),
                                      torch::nn::Linear(1024, 10)))};
  torch::Tensor forward(const torch::Tensor& x) { return layers->forward(x); }
};
TORCH_MODULE(SimpleModel);

void train(trireme::Group world, const std::string& ds_config,
           std::shared_ptr<const trireme::DataSource> images) {
  torch::manual_seed(7);
  SimpleModel model;
  auto model_engine = trireme::initialize(model, ds_config, world);

  trireme::SourceDataset dataset(images);
  trireme::DistributedSampler sampler(*dataset.size(), world.size(), world.rank());
  auto train_loader = torch::data::make_data_loader(dataset, sampler,
                                                    model_engine.train_micro_batch_size_per_gpu());

  for (int epoch = 0; epoch < 10; ++epoch) {
    for (auto& [data, labels] : *train_loader) {
      auto outputs = model_engine.forward(data.flatten(1));
      auto loss = torch::nn::functional::cross_entropy(outputs, labels);
      model_engine.backward(loss);
      model_engine.step();
    }
    if (world.rank() == 0)
      std::printf("Epoch %d completed, loss %.4f\n", epoch, model_engine.loss());
  }
  if (world.rank() == 0)
    std::printf("%d ranks, loss scale %g, %d of %d steps skipped\n", world.size(),
                model_engine.loss_scale(), static_cast<int>(model_engine.skipped_steps()),
                static_cast<int>(model_engine.global_steps()));
}

int main(int argc, char** argv) try {
  if (argc < 2) throw trireme::UsageError("usage: deepspeed_mlp DS_CONFIG [FOLDER_OF_MNIST]");
  train(trireme::init_process_group(), argv[1],
        argc > 2 ? trireme::open_idx(argv[2], trireme::IdxPart::kTrain)
                 : trireme::make_digits({.count = 512}));
  return 0;
} catch (const trireme::Error& e) {
  std::fprintf(stderr, "%s\n", e.what());
  return 1;
}
