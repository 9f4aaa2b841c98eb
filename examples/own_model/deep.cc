// SPDX-License-Identifier: Apache-2.0
// A network whose pieces follow each other, and which therefore trains as a pipeline too, and whose
// wide layers are divided over ranks: each rank makes and computes some of its blocks, or a part of
// each of them, or both.
//   ./deep deep.json
//   ./deep deep.json --nproc-per-node 2 --set parallelism.pp=2
//   ./deep deep.json --nproc-per-node 2 --set parallelism.tp=2
//   ./deep deep.json --nproc-per-node 4 --set parallelism.pp=2 --set parallelism.tp=2
//   ./deep deep.json --nproc-per-node 4 --set parallelism.tp=2 --set zero_optimization.stage=1
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>
#include <torch/types.h>
#include <trireme/trireme.h>

using namespace trireme;

struct Waves : DataSource {  // samples by number
  int64_t size() const override { return 8192; }
  std::string describe() const override { return "8192 points on waves"; }
  MicroBatch get(const std::vector<int64_t>& ids) const override {
    MicroBatch batch;
    batch.input = torch::tensor(ids, torch::kFloat).unsqueeze(1) * (8.0 / 8192) - 4;
    batch.target = (2 * batch.input).sin() * batch.input.cos();
    batch.weight = static_cast<int64_t>(ids.size());
    batch.samples = ids;
    return batch;
  }
};

struct BlockImpl : torch::nn::Module {
  BlockImpl(const TensorParallel& tp, int64_t width) {
    norm = register_module("norm", torch::nn::LayerNorm(torch::nn::LayerNormOptions({width})));
    mlp = register_module("mlp", std::make_shared<ParallelGeluMlp>(tp, width, 4 * width));
  }
  at::Tensor forward(const at::Tensor& x) { return x + mlp->forward(norm(x)); }
  torch::nn::LayerNorm norm{nullptr};    // on every rank
  std::shared_ptr<ParallelGeluMlp> mlp;  // of which each rank has some of the hidden units
};
TORCH_MODULE(Block);

struct DeepSection {  // keys of your own, checked like all others
  int64_t width = 64, blocks = 6;
  void fields(Fields& f) {
    f.field({.path = "deep.width", .min = 1, .help = "width of the hidden layers"}, width);
    f.field({.path = "deep.blocks", .min = 1, .help = "residual blocks"}, blocks);
  }
};

struct Deep : ChainProgram {
  void keys(KeyTable& table) override { table.add<DeepSection>(); }
  Sources data(const Config&) override { return {std::make_shared<Waves>(), nullptr, "waves"}; }
  // Without parallelism.tp, `tp` is one rank, and the layers are whole.
  Pieces make_divided(const Config& config, const TensorParallel& tp) override {
    const auto [width, blocks] = config.section<DeepSection>();
    // A cost says how a pipeline divides the pieces: both ends are cheap beside a block.
    Pieces all{piece(
        "in", [width = width] { return torch::nn::Linear(1, width); }, 0.1)};
    for (int64_t i = 0; i < blocks; ++i)
      all.push_back(
          piece("blocks." + std::to_string(i), [tp, width = width] { return Block(tp, width); }));
    all.push_back(piece(
        "out", [width = width] { return torch::nn::Linear(width, 1); }, 0.1));
    return all;
  }
  LossTerms loss_of(const Tensors& outputs, const MicroBatch& batch) override {  // sums, not means
    return {{"squares", (outputs[0] - batch.target).square().sum()}};
  }
};

int main(int argc, char** argv) { return train_main<Deep>(argc, argv); }
