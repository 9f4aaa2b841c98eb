// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "trireme/base/export.h"
#include "trireme/pipeline/schedule/stage_blocks.h"

namespace trireme {

/// Runs a unit of a network: gives compute(inputs). What a unit is, the network says: a part whose
/// parameters no other part uses.
using UnitCompute = std::function<std::vector<at::Tensor>(const std::vector<at::Tensor>&)>;
using UnitRunner = std::function<std::vector<at::Tensor>(int64_t unit, const UnitCompute& compute,
                                                         const std::vector<at::Tensor>& inputs)>;
/// Told of each unit (by number, rising from 0) when its parameters have their values, before the
/// next one is made.
using UnitMade =
    std::function<void(int64_t unit, const std::string& path, torch::nn::Module& module)>;

/// What the trainer needs of a network.
struct TRIREME_API Model : torch::nn::Module {
  using torch::nn::Module::Module;
  ~Model() override;
  virtual at::Tensor forward(const at::Tensor& input) = 0;
  /// The same, of a network with any number of inputs and outputs. UsageError for another number.
  virtual std::vector<at::Tensor> forward_list(const std::vector<at::Tensor>& inputs);
  /// The *sum* of the losses over the micro-batch, a float32 scalar: the mean is taken once, by the
  /// global weight.
  virtual at::Tensor loss_sum(const at::Tensor& output, const at::Tensor& target) = 0;

  /// For a network of which this rank has stages of a pipeline: which of them, in their order, the
  /// next forward_list() computes. Its inputs are then what the stage before gave (nothing for the
  /// first) and, last, the micro-batch's input. UsageError for a network that has no stages.
  virtual void select_stage(size_t stage);

  /// For a network of which this rank has the first stage and, apart from it, the last one (a V):
  /// parameters of the last that are copies of one of the first (a tied head), and of which. They
  /// begin equal, and stay so if each is updated with the sum of the gradients of both.
  virtual std::map<std::string, std::string> copies() const { return {}; }

  /// The number of right answers in the micro-batch, an integer scalar: the largest score is the
  /// target's.
  virtual at::Tensor count_right(const at::Tensor& output, const at::Tensor& target);

  /// Blocks, all of one kind, whose inner values can be dropped after forward and computed again in
  /// backward (tensor/recompute/recompute.h). 0: the model has none.
  virtual int64_t blocks() const { return 0; }
  /// For each block, whether it is. The same bits either way. UsageError for another number.
  virtual void set_recompute(std::vector<bool> blocks);

  /// How units run (those that UnitMade was told of); empty: as they are.
  void set_unit_runner(UnitRunner runner) { runner_ = std::move(runner); }

 protected:
  at::Tensor run_unit(int64_t unit, const std::function<at::Tensor(const at::Tensor&)>& compute,
                      const at::Tensor& x) const {
    if (!runner_) return compute(x);
    return run_unit(
        unit,
        [&](const std::vector<at::Tensor>& in) {
          return std::vector<at::Tensor>{compute(in.at(0))};
        },
        std::vector<at::Tensor>{x})[0];
  }
  std::vector<at::Tensor> run_unit(int64_t unit, const UnitCompute& compute,
                                   const std::vector<at::Tensor>& inputs) const {
    return runner_ ? runner_(unit, compute, inputs) : compute(inputs);
  }

 private:
  UnitRunner runner_;
};

/// The options of the network as a whole; `stages` says what of it is made.
struct GptOptions {
  int64_t layers = 6, width = 384, heads = 6, context = 256;
  int64_t vocab = 256;  // bytes
  double dropout = 0.1;
  bool tied_head = false;  // the head is the transposed token embedding
  /// k: the inner values of every k-th block are dropped after its forward and computed again in
  /// backward (tensor/recompute/recompute.h). 0: of none. The same bits either way.
  int64_t recompute_every = 0;
  /// What this rank has of the network, by stage, first to last; empty: all of it. Parameters keep
  /// the names and values that they have in the whole.
  std::vector<pipeline::StageBlocks> stages{};
  /// The last token of a document. Rows then hold several: positions begin anew in each, and
  /// attention does not see others. Every stage reads them from the micro-batch's tokens.
  std::optional<int64_t> end_of_document{};
};

struct ModelOptions {
  std::string type = "gpt";                      // mlp, net, convnet, gpt
  std::vector<int64_t> mlp_sizes{784, 256, 10};  // input, hidden …, classes
  GptOptions gpt;
  UnitMade unit_made{};  // who splits parameters over ranks unit by unit (ZeRO-3)
};

/// A network whose parameters are a pure function of (seed, parameter name, element), whatever else
/// has been drawn. Throws UsageError for an unknown type or sizes that do not fit.
TRIREME_API std::shared_ptr<Model> make_model(const ModelOptions& options, uint64_t seed);

}  // namespace trireme
