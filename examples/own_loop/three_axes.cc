// SPDX-License-Identifier: Apache-2.0
// A transformer divided over three axes: stages of blocks (pp), parts of layers (tp), and replicas
// that read other samples (dp), which is what is left of the ranks.
//   trireme run --nproc-per-node 8 own_loop_three_axes [PP [TP [SCHEDULE]]]
#include <torch/torch.h>
#include <trireme/trireme.h>

#include <cstdio>
#include <cstdlib>
#include <string>

constexpr int64_t kVocab = 64, kWidth = 32, kHeads = 4, kBlocks = 4, kTime = 16, kRows = 4;
constexpr int kMicroBatches = 8;  // of a step, over all replicas
using Tensors = std::vector<torch::Tensor>;

// Rows that count up by 1, 2 or 3: the network has to see by how much.
torch::Tensor tokens_of(int64_t number) {
  auto g = at::make_generator<at::CPUGeneratorImpl>(static_cast<uint64_t>(number));
  const auto first = torch::randint(0, kVocab, {kRows, 1}, g, torch::kLong);
  return (first + torch::randint(1, 4, {kRows, 1}, g, torch::kLong) * torch::arange(kTime + 1))
      .remainder(kVocab);
}

// Some of the blocks; the first stage has the embedding too, and the last one the head.
struct Stage : torch::nn::Module {
  Stage(const trireme::TensorParallel& tp, int index, int stages) {
    if (index == 0) {
      wte = register_module("wte",
                            std::make_shared<trireme::VocabParallelEmbedding>(tp, kVocab, kWidth));
      wpe = register_module("wpe", std::make_shared<trireme::ParallelPositions>(tp, kTime, kWidth));
    }
    for (int64_t i = index * kBlocks / stages; i < (index + 1) * kBlocks / stages; ++i)
      blocks.push_back(register_module(
          "block" + std::to_string(i),
          std::make_shared<trireme::ParallelBlock>(
              tp, trireme::ParallelBlockOptions{.width = kWidth, .heads = kHeads})));
    if (index + 1 == stages) {
      ln = register_module("ln", std::make_shared<trireme::ParallelLayerNorm>(tp, kWidth));
      head = register_module("head",
                             std::make_shared<trireme::ColumnParallelLinear>(tp, kWidth, kVocab));
    }
    trireme::init_gpt(*this, 42, kBlocks);  // by names, so alike in any layout
  }
  Tensors forward(const Tensors& in) {
    torch::Tensor x = wte ? wpe->forward(wte->forward(in[0]), kTime) : in[0];
    for (auto& block : blocks) x = block->forward(x, kTime);
    return {head ? head->forward(ln->forward(x), kTime) : x};
  }
  std::shared_ptr<trireme::VocabParallelEmbedding> wte;
  std::shared_ptr<trireme::ParallelPositions> wpe;
  std::vector<std::shared_ptr<trireme::ParallelBlock>> blocks;
  std::shared_ptr<trireme::ParallelLayerNorm> ln;
  std::shared_ptr<trireme::ColumnParallelLinear> head;
};

void train(trireme::Group world, int pp, int tp, const std::string& schedule) {
  trireme::DeviceMesh mesh(world, trireme::parallel_axes({.dp_shard = -1, .tp = tp, .pp = pp}));
  mesh.make_groups();
  trireme::Group replicas = mesh.group("dp_shard"), stages = mesh.group("pp");
  const trireme::TensorParallel parts(mesh.group("tp"), {.sequence_parallel = true});
  const int each = kMicroBatches / replicas.size();
  if (each * replicas.size() != kMicroBatches)
    throw trireme::UsageError("8 micro-batches do not divide by the replicas: start other ranks");

  auto stage = std::make_shared<Stage>(parts, stages.rank(), pp);
  torch::optim::AdamW optimizer(stage->parameters(), torch::optim::AdamWOptions(3e-3));
  trireme::Pipeline pipeline(
      stages, trireme::pipeline::generate_schedule(schedule, {.ranks = pp, .micro_batches = each}),
      {{stages.rank(), [&](const Tensors& in, int) { return stage->forward(in); }}},
      {.reduce_gradients = [&](int) {  // this stage's gradients are complete on this rank
        for (auto& p : stage->parameters()) replicas.all_reduce(p.grad()).wait();
      }});

  for (int step = 0; step < 60; ++step) {
    const int64_t first = int64_t{step} * kMicroBatches + replicas.rank() * each;
    optimizer.zero_grad();
    const Tensors losses = pipeline.step(
        [&](int i) { return Tensors{tokens_of(first + i).narrow(1, 0, kTime)}; },
        [&](const Tensors& logits, int i) {
          const auto target = tokens_of(first + i).narrow(1, 1, kTime);
          return trireme::vocab_parallel_cross_entropy(logits[0], target, kVocab, parts) /
                 kMicroBatches;  // so that micro-batches and replicas add up to a mean
        });
    trireme::add_shared_gradients(*stage, parts);  // norms saw a part of the positions on each rank
    optimizer.step();

    torch::Tensor total = torch::zeros({1});
    if (parts.rank() == 0)  // all parts have the same loss
      for (const auto& loss : losses) total += loss;
    world.all_reduce(total).wait();
    if (world.rank() == 0 && (step + 1) % 10 == 0)
      std::printf("step %d, loss %.4f\n", step + 1, total.item<double>());
  }
}

int main(int argc, char** argv) try {
  train(trireme::init_process_group(), argc > 1 ? std::atoi(argv[1]) : 1,
        argc > 2 ? std::atoi(argv[2]) : 1, argc > 3 ? argv[3] : "1f1b");
  return 0;
} catch (const trireme::Error& e) {
  std::fprintf(stderr, "%s\n", e.what());
  return 1;
}
