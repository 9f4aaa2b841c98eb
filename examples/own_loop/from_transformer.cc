// SPDX-License-Identifier: Apache-2.0
// The transformer of transformer.h, whose weights are divided over stages of layers (pp), parts of
// layers (tp), and replicas that read other samples (dp), which is what is left of the ranks. Its
// losses are those of the whole network (transformer.cc).
//   trireme run --nproc-per-node 8 own_loop_from_transformer [PP [TP]]
#include <torch/torch.h>
#include <trireme/trireme.h>

#include <cstdlib>

#include "transformer.h"

using namespace trireme;
using Tensors = std::vector<torch::Tensor>;

template <class Module, class... Args>
std::shared_ptr<Module> make(torch::nn::Module& parent, const std::string& name, Args... args) {
  return parent.register_module(name, std::make_shared<Module>(args...));
}

// A TransformerEncoderLayer of which each rank has a part.
struct Layer : torch::nn::Module {
  explicit Layer(const TensorParallel& tp) {
    attention = make<ParallelAttention>(*this, "self_attn", tp,
                                        ParallelAttentionOptions{.width = kWidth, .heads = kHeads});
    linear1 = make<ColumnParallelLinear>(*this, "linear1", tp, kWidth, 4 * kWidth);
    linear2 = make<RowParallelLinear>(*this, "linear2", tp, 4 * kWidth, kWidth);
    norm1 = make<ParallelLayerNorm>(*this, "norm1", tp, kWidth);
    norm2 = make<ParallelLayerNorm>(*this, "norm2", tp, kWidth);
  }
  torch::Tensor forward(torch::Tensor x) {
    x = norm1->forward(x + attention->forward(x, kTime));
    return norm2->forward(x + linear2->forward(torch::relu(linear1->forward(x, kTime))));
  }
  std::shared_ptr<ParallelAttention> attention;
  std::shared_ptr<ColumnParallelLinear> linear1;
  std::shared_ptr<RowParallelLinear> linear2;
  std::shared_ptr<ParallelLayerNorm> norm1, norm2;
};

// Some of the layers; the first stage has the embedding too, and the last one the head.
struct Stage : torch::nn::Module {
  Stage(const TensorParallel& tp, int index, int stages) {
    if (index == 0) {
      words = make<VocabParallelEmbedding>(*this, "words", tp, kVocab, kWidth);
      places = make<ParallelPositions>(*this, "places", tp, kTime, kWidth);
    }
    auto list = make<torch::nn::Module>(*this, "layers");
    for (int64_t i = index * kLayers / stages; i < (index + 1) * kLayers / stages; ++i)
      layers.push_back(make<Layer>(*list, std::to_string(i), tp));
    if (index + 1 == stages) head = make<ColumnParallelLinear>(*this, "head", tp, kWidth, kVocab);
  }
  Tensors forward(const Tensors& in) {
    torch::Tensor x = words ? places->forward(words->forward(in[0]), kTime) : in[0];
    for (auto& layer : layers) x = layer->forward(x);
    return {head ? head->forward(x, kTime) : x};
  }
  std::shared_ptr<VocabParallelEmbedding> words;
  std::shared_ptr<ParallelPositions> places;
  std::vector<std::shared_ptr<Layer>> layers;
  std::shared_ptr<ColumnParallelLinear> head;
};

// Gives a stage its parts of the network's weights. Only the attention has other names for them.
void load(Stage& stage, const Whole& whole) {
  torch::NoGradGuard no_grad;
  const auto weights = whole.named_parameters();
  const auto layouts = layouts_of(stage);
  for (auto& item : stage.named_parameters()) {
    std::string name = item.key();
    if (const auto at = name.find(".qkv."); at != name.npos) name.replace(at, 5, ".in_proj_");
    if (const auto at = name.find(".proj."); at != name.npos) name.replace(at, 6, ".out_proj.");
    item.value().copy_(part_of(weights[name], layouts.at(item.key())));
  }
}

void train(Group world, int pp, int tp) {
  DeviceMesh mesh(world, parallel_axes({.dp_shard = -1, .tp = tp, .pp = pp}));
  mesh.make_groups();
  Group replicas = mesh.group("dp_shard"), stages = mesh.group("pp");
  const TensorParallel parts(mesh.group("tp"), {.sequence_parallel = true});
  const int each = kMicroBatches / replicas.size();
  if (each * replicas.size() != kMicroBatches)
    throw UsageError("8 micro-batches do not divide by the replicas: start other ranks");

  auto stage = std::make_shared<Stage>(parts, stages.rank(), pp);
  load(*stage, Whole());
  torch::optim::SGD optimizer(stage->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
  Pipeline pipeline(
      stages, pipeline::generate_schedule("1f1b", {.ranks = pp, .micro_batches = each}),
      {{stages.rank(), [&](const Tensors& in, int) { return stage->forward(in); }}},
      {.reduce_gradients = [&](int) {  // this stage's gradients are complete on this rank
        for (auto& p : stage->parameters()) replicas.all_reduce(p.grad()).wait();
      }});
  for (int step = 0; step < kSteps; ++step) {
    const int64_t first = int64_t{step} * kMicroBatches + replicas.rank() * each;
    optimizer.zero_grad();
    const Tensors losses = pipeline.step(
        [&](int i) { return Tensors{tokens_of(first + i).narrow(1, 0, kTime)}; },
        [&](const Tensors& logits, int i) {
          const auto target = tokens_of(first + i).narrow(1, 1, kTime);
          // Micro-batches and replicas add up to a mean.
          return vocab_parallel_cross_entropy(logits[0], target, kVocab, parts) / kMicroBatches;
        });
    add_shared_gradients(*stage, parts);  // norms saw a part of the positions on each rank
    optimizer.step();

    // The last stage has them, and all of its parts the same.
    const bool tells = parts.rank() == 0 && !losses.empty();
    torch::Tensor total = tells ? torch::stack(losses).sum() : torch::zeros({});
    world.all_reduce(total).wait();
    if (world.rank() == 0) print(step + 1, total.item<double>());
  }
}

int main(int argc, char** argv) try {
  train(init_process_group(), argc > 1 ? std::atoi(argv[1]) : 1, argc > 2 ? std::atoi(argv[2]) : 1);
} catch (const Error& e) {
  std::fprintf(stderr, "%s\n", e.what());
  return 1;
}
