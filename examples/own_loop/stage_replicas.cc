// SPDX-License-Identifier: Apache-2.0
// The transformer of transformer.h as two stages, each on several ranks that read other samples:
// DistributedDataParallel, ZeRO-2 or ZeRO-3 over the replicas of a stage. Its losses are those of
// the whole network (transformer.cc).
//   trireme run --nproc-per-node 4 own_loop_stage_replicas [ddp|zero2|zero3 [SCHEDULE]]
#include <torch/torch.h>
#include <trireme/trireme.h>

#include <string>

#include "transformer.h"

using namespace trireme;
using Tensors = std::vector<torch::Tensor>;
using Layer = torch::nn::TransformerEncoderLayerImpl;

constexpr int kStages = 2;

// Some of the layers; the first stage has the embedding too, and the last one the head.
struct Stage : torch::nn::Module {
  explicit Stage(int index) {
    Whole whole;
    if (index == 0) {
      words = register_module("words", whole.words);
      places = register_module("places", whole.places);
    }
    for (int64_t i = index * kLayers / kStages; i < (index + 1) * kLayers / kStages; ++i) {
      names.push_back("layer" + std::to_string(i));
      layers.push_back(register_module(names.back(), whole.layers->ptr<Layer>(i)));
    }
    if (index + 1 == kStages) head = register_module("head", whole.head);
  }
  torch::Tensor layer(size_t i, const torch::Tensor& x) {
    return layers[i]->forward(x, torch::full({kTime, kTime}, -INFINITY).triu(1));
  }
  // `run` runs layer i, which may have to be gathered.
  template <class Run>
  Tensors forward(const Tensors& in, const Run& run) {
    torch::Tensor x = words ? (words(in[0]) + places->weight).transpose(0, 1) : in[0];
    for (size_t i = 0; i < layers.size(); ++i) x = run(i, x);
    return {head ? head(x.transpose(0, 1)) : x};
  }
  torch::nn::Embedding words{nullptr}, places{nullptr};
  std::vector<std::string> names;
  std::vector<std::shared_ptr<Layer>> layers;
  torch::nn::Linear head{nullptr};
};

struct Job {
  Group world, stages, replicas;
  std::string schedule;
};

// `wrapped` adds the stage's gradients over its replicas, when the schedule says that they are
// complete; `optimizer` updates what this rank owns.
template <class Wrapped, class Optimizer, class Forward>
void train(Job job, Wrapped& wrapped, Optimizer& optimizer, const Forward& forward) {
  const int each = kMicroBatches / job.replicas.size();
  Pipeline pipeline(
      job.stages,
      pipeline::generate_schedule(job.schedule, {.ranks = kStages, .micro_batches = each}),
      {{job.stages.rank(), [&](const Tensors& in, int) { return forward(in); }}},
      {.reduce_gradients = [&](int) { wrapped.reduce_accumulated(); }});
  for (int step = 0; step < kSteps; ++step) {
    const int64_t first = int64_t{step} * kMicroBatches + job.replicas.rank() * each;
    optimizer.zero_grad();
    Tensors losses;
    {
      auto nothing_yet = wrapped.no_sync();  // backwards accumulate
      losses =
          pipeline.step([&](int i) { return Tensors{tokens_of(first + i).narrow(1, 0, kTime)}; },
                        [&](const Tensors& logits, int i) {
                          const auto target = tokens_of(first + i).narrow(1, 1, kTime);
                          return torch::nn::functional::cross_entropy(
                                     logits[0].reshape({-1, kVocab}), target.reshape({-1})) /
                                 each;  // of this replica: the wrapper takes the mean over replicas
                        });
    }
    optimizer.step();

    torch::Tensor total = losses.empty() ? torch::zeros({}) : torch::stack(losses).sum();
    job.world.all_reduce(total).wait();
    if (job.world.rank() == 0) print(step + 1, total.item<double>() / job.replicas.size());
  }
}

void train(Group world, const std::string& how, const std::string& schedule) {
  DeviceMesh mesh(world, parallel_axes({.dp_shard = -1, .pp = kStages}));
  mesh.make_groups();
  const Job job{world, mesh.group("pp"), mesh.group("dp_shard"), schedule};
  if (kMicroBatches % job.replicas.size() != 0)
    throw UsageError("8 micro-batches do not divide by the replicas: start other ranks");
  auto stage = std::make_shared<Stage>(job.stages.rank());
  const auto options = torch::optim::SGDOptions(0.1).momentum(0.9);
  const auto whole = [&](const Tensors& in) {
    return stage->forward(in, [&](size_t i, const auto& x) { return stage->layer(i, x); });
  };
  if (how == "ddp") {
    DistributedDataParallel ddp(*stage, job.replicas);
    torch::optim::SGD optimizer(stage->parameters(), options);
    return train(job, ddp, optimizer, whole);
  }
  if (how == "zero2") {
    ShardedDataParallel zero(*stage, job.replicas);
    ShardedOptimizer<torch::optim::SGD> optimizer(zero.sharded(), options);
    return train(job, zero, optimizer, whole);
  }
  if (how != "zero3") throw UsageError("'" + how + "': say ddp, zero2 or zero3");
  FullySharded full(job.replicas);
  std::vector<FullySharded::Unit*> units;
  for (size_t i = 0; i < stage->layers.size(); ++i)
    units.push_back(&full.unit(stage->names[i], *stage->layers[i]));
  full.root(*stage);  // what no layer holds
  ShardedOptimizer<torch::optim::SGD> optimizer(full, options);
  train(job, full, optimizer, [&](const Tensors& in) {
    return full.run(
        [&](const Tensors& entered) {
          return stage->forward(entered, [&](size_t i, const torch::Tensor& x) {
            return units[i]->run([&](const torch::Tensor& y) { return stage->layer(i, y); }, x);
          });
        },
        in);
  });
}

int main(int argc, char** argv) try {
  train(init_process_group(), argc > 1 ? argv[1] : "ddp", argc > 2 ? argv[2] : "1f1b");
} catch (const Error& e) {
  std::fprintf(stderr, "%s\n", e.what());
  return 1;
}
