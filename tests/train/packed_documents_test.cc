// SPDX-License-Identifier: Apache-2.0
// Rows that hold several documents one behind the other: where each begins, and so who may attend
// to whom, comes from the data to every stage of a pipeline, and does not pass through the stages.
#include <gtest/gtest.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/types.h>

#include <cmath>
#include <utility>

#include "tests/train/program_runs.h"
#include "trireme/train/program/chain_program.h"

namespace packed_documents_test {

using namespace trireme;
using namespace trireme::testing;

namespace {

constexpr int64_t kTokens = 19, kTime = 12, kWidth = 16;

/// Row n is packed of documents of 3 + n % 4 tokens each.
struct Packed final : DataSource {
  explicit Packed(bool told) : told(told) {}
  int64_t size() const override { return 128; }
  std::string describe() const override { return "packed"; }
  MicroBatch get(const std::vector<int64_t>& ids) const override {
    const at::Tensor n = torch::tensor(ids, torch::kLong).unsqueeze(1);
    const at::Tensor at = torch::arange(kTime + 1);
    const at::Tensor all = at.div(n % 4 + 3, "floor");  // which document, by position
    const at::Tensor words = (n * 5 + at * (all + 1) * 3) % kTokens;
    const at::Tensor documents = all.narrow(1, 0, kTime).contiguous();
    MicroBatch b;
    b.input = words.narrow(1, 0, kTime).contiguous();
    b.target = words.narrow(1, 1, kTime).contiguous();
    b.more = {{"documents", told ? documents : torch::zeros_like(documents)}};
    b.weight = b.input.numel();
    b.samples = ids;
    return b;
  }
  const bool told;
};

/// Positions count from the beginning of each document.
at::Tensor positions_in(const at::Tensor& documents) {
  const at::Tensor same = documents.unsqueeze(2).eq(documents.unsqueeze(1));
  return same.tril(-1).sum(2);
}

/// What a token may not see: later ones, and other documents.
at::Tensor hidden_by(const at::Tensor& documents) {
  return documents.unsqueeze(2).eq(documents.unsqueeze(1)).tril().logical_not();
}

struct InImpl : torch::nn::Module {
  InImpl()
      : words(register_module("words", torch::nn::Embedding(kTokens, kWidth))),
        places(register_module("places", torch::nn::Embedding(kTime, kWidth))) {}
  at::Tensor forward(const at::Tensor& ids, const at::Tensor& documents) {
    return words(ids) + places(positions_in(documents));
  }
  torch::nn::Embedding words, places;
};
TORCH_MODULE(In);

struct AttendImpl : torch::nn::Module {
  AttendImpl()
      : qkv(register_module("qkv", torch::nn::Linear(kWidth, 3 * kWidth))),
        proj(register_module("proj", torch::nn::Linear(kWidth, kWidth))) {}
  at::Tensor forward(const at::Tensor& x, const at::Tensor& documents) {
    const auto parts = qkv(x).chunk(3, 2);
    const at::Tensor scores = parts[0].matmul(parts[1].transpose(1, 2)) / std::sqrt(kWidth);
    const at::Tensor weights = scores.masked_fill(hidden_by(documents), -INFINITY).softmax(2);
    return x + proj(weights.matmul(parts[2]));
  }
  torch::nn::Linear qkv, proj;
};
TORCH_MODULE(Attend);

template <bool told>
struct PackedProgram : ChainProgram {
  Pieces make(const Config&) override {
    Pieces all{piece("in", [] { return In(); })};
    for (int i = 0; i < 4; ++i)
      all.push_back(piece("blocks." + std::to_string(i), [] { return Attend(); }));
    all.push_back(piece("out", [] { return torch::nn::Linear(kWidth, kTokens); }));
    return all;
  }
  Sources data(const Config&) override {
    return {std::make_shared<Packed>(told), std::make_shared<Packed>(told), "packed"};
  }
  Tensors run_piece(Network& net, const std::string& path, const Tensors& inputs,
                    const MicroBatch& b) override {
    Tensors all = inputs;
    if (path != "out") all.push_back(b.tensor("documents"));
    return net.run_list(path, all);
  }
  LossTerms loss_of(const Tensors& outputs, const MicroBatch& b) override {
    return {{"loss", cross_entropy_sum(outputs.at(0).flatten(0, 1), b.target.flatten())}};
  }
};

template <bool told>
std::vector<double> losses_of(int ranks, const Sets& more) {
  Sets sets = more;
  sets.push_back("train_micro_batch_size_per_gpu=2");
  std::vector<double> losses;
  for (const auto& step :
       on_threads<PackedProgram<told>>(ranks, config_for<PackedProgram<told>>(sets)).losses)
    for (const auto& [name, loss] : step) losses.push_back(loss);
  return losses;
}

}  // namespace

TEST(train_packed_documents, bounds_and_positions_reach_every_stage_from_the_data) {
  const std::vector<double> want = losses_of<true>(1, {});
  ASSERT_EQ(want.size(), 6u);
  // Without bounds the same rows are one document each, and give another loss.
  EXPECT_GT(std::abs(losses_of<false>(1, {})[0] - want[0]), 1e-3);
  for (const auto& [ranks, sets] : std::vector<std::pair<int, Sets>>{
           {2, {"parallelism.pp=2"}},
           {2, {"parallelism.pp=2", "parallelism.schedule=zb_v"}},
           {2, {"parallelism.pp=2", "parallelism.schedule=interleaved_1f1b"}},
           {4, {"parallelism.pp=2", "zero_optimization.stage=3"}},
           {4, {"parallelism.pp=4"}}}) {
    const std::vector<double> got = losses_of<true>(ranks, sets);
    ASSERT_EQ(got.size(), want.size());
    for (size_t i = 0; i < want.size(); ++i)
      EXPECT_NEAR(got[i], want[i], 1e-5 * want[i]) << sets.back() << " on " << ranks << ", " << i;
  }
}

}  // namespace packed_documents_test
