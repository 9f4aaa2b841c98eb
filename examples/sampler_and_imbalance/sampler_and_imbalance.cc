// SPDX-License-Identifier: Apache-2.0
// Classes of which one is rare: of the digits 0 and 8 a Subset keeps all zeros, but one eight in
// ten. Trained once with a DistributedSampler, which deals all samples to the ranks, and once with
// a DistributedWeightedSampler, which draws both classes equally often, whatever the number of
// ranks. The collate function shifts, mirrors and turns each image, otherwise in every epoch; a
// rare image that is drawn often is never quite the same.
//   trireme run --nproc-per-node 4 sampler_and_imbalance
#include <torch/torch.h>
#include <trireme/trireme.h>

#include <cstdio>
#include <numeric>

using trireme::MicroBatch;

MicroBatch all_of_them(const trireme::DataSource& source) {
  std::vector<int64_t> ids(source.size());
  std::iota(ids.begin(), ids.end(), 0);
  return source.get(ids);
}

struct Result {
  double eights, found;  // of what the ranks saw; of new eights, that were told from zeros
};

template <class Sampler>
Result train(trireme::Group world, Sampler sampler,
             const trireme::Subset<trireme::SourceDataset>& subset, int64_t& epoch,
             const trireme::DataSource& held_out) {
  torch::manual_seed(1);
  torch::nn::Sequential net(torch::nn::Flatten(), torch::nn::Linear(784, 32), torch::nn::ReLU(),
                            torch::nn::Linear(32, 2));
  trireme::DistributedDataParallel ddp(*net, world);
  torch::optim::SGD optimizer(net->parameters(), torch::optim::SGDOptions(0.02).momentum(0.9));
  auto loader = torch::data::make_data_loader(subset, sampler, 8);
  auto seen = torch::zeros({2});  // samples, and eights among them
  for (epoch = 0; epoch < 5; ++epoch) {
    sampler.set_epoch(epoch);  // otherwise the same order, and the same images, in each epoch
    for (auto& [data, target] : *loader) {
      optimizer.zero_grad();
      torch::nn::functional::cross_entropy(net->forward(data), target).backward();
      optimizer.step();
      seen += torch::stack({torch::tensor(target.size(0)), target.sum()});
    }
  }
  world.all_reduce(seen).wait();
  torch::NoGradGuard no_grad;
  const auto batch = all_of_them(held_out);
  const auto says_eight = net->forward(batch.input).argmax(1).eq(1), is_eight = batch.target.eq(8);
  return {(seen[1] / seen[0]).item<double>(),
          (says_eight & is_eight).sum().item<double>() / is_eight.sum().item<double>()};
}

void print(const trireme::Group& world, const char* how, const Result& r) {
  if (world.rank() == 0)
    std::printf("%s: %.1f %% of the samples were eights, %.1f %% of new eights are found\n", how,
                100 * r.eights, 100 * r.found);
}

int main() try {
  auto world = trireme::init_process_group();
  const auto digits = trireme::make_digits({.count = 1500}),
             held_out = trireme::make_digits({.count = 500, .part = "validation"});
  const auto labels = all_of_them(*digits).target;
  std::vector<size_t> kept;
  std::vector<int64_t> classes;
  for (int64_t i = 0, eights = 0; i < labels.size(0); ++i) {
    const auto label = labels[i].item<int64_t>();
    if (label == 0 || (label == 8 && eights++ % 10 == 0)) {
      kept.push_back(i);
      classes.push_back(label);
    }
  }
  int64_t epoch = 0;
  trireme::SourceDataset images(digits, [&](MicroBatch& b) {
    b.input = trireme::augment(b.input, b.samples, epoch,
                               {.crop_padding = 2,
                                .horizontal_flip = 0.5,
                                .degrees = 10,
                                .fill = trireme::normalised_pixel(0)});
    b.target = b.target.eq(8).to(torch::kLong);
  });
  const trireme::Subset subset(images, kept);
  const size_t size = world.size(), rank = world.rank();
  print(
      world, "as they are",
      train(world, trireme::DistributedSampler(kept.size(), size, rank), subset, epoch, *held_out));
  const auto weights = trireme::balanced_weights(torch::tensor(classes));
  print(world, "weighted",
        train(world, trireme::DistributedWeightedSampler(weights, size, rank), subset, epoch,
              *held_out));
  return 0;
} catch (const trireme::Error& e) {
  std::fprintf(stderr, "%s\n", e.what());
  return 1;
}
