// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "trireme/models/model.h"
#include "trireme/train/precision/precision.h"
#include "trireme/train/program/piece.h"
#include "trireme/train/setup/compute.h"

namespace trireme {

/// The pieces of one update as the model of a run. The model's forward is a micro-batch's loss,
/// whatever pieces it runs: within() runs it through the run's Compute, so that ZeRO's root is
/// whole around it and each piece's own forward has the plan's precision.
class ProgramModel final : public Model {
 public:
  /// The random numbers that a piece draws from LibTorch's default generator while it is made
  /// depend only on `seed` and its path.
  ProgramModel(const std::vector<const Piece*>& pieces, const PrecisionPlan& precision,
               at::DeviceType device, const UnitMade& unit_made, uint64_t seed);

  using Body = std::function<std::vector<at::Tensor>()>;
  /// Runs body() with the model's parameters ready for computation. The pieces that it runs must
  /// belong to this model or to others that are open.
  std::vector<at::Tensor> within(Compute& compute, const Body& body);
  bool is_open() const { return open_ > 0; }
  /// Runs a piece, given by its index. Outside within() its parameters must be whole.
  std::vector<at::Tensor> run(size_t piece, const std::vector<at::Tensor>& inputs);
  torch::nn::Module& module(size_t piece) { return *pieces_.at(piece).made.module; }

  std::vector<at::Tensor> forward_list(const std::vector<at::Tensor>& inputs) override;
  at::Tensor forward(const at::Tensor& input) override;
  at::Tensor loss_sum(const at::Tensor& output, const at::Tensor& target) override;
  int64_t blocks() const override { return static_cast<int64_t>(pieces_.size()); }
  void set_recompute(std::vector<bool> pieces) override;

 private:
  struct Held {
    std::string path;
    Piece::Made made;
    bool recompute = false;
  };
  std::vector<at::Tensor> forward_of(Held& piece, const std::vector<at::Tensor>& inputs);

  std::vector<Held> pieces_;
  const at::DeviceType device_;                      // autocast's
  std::optional<at::ScalarType> stored_, autocast_;  // in half precision
  const Body* body_ = nullptr;
  int open_ = 0;
};

/// Throws UsageError if the pieces cannot form a model: an empty path, the same path twice, one
/// path inside another, or the same tensor in two pieces.
void check_pieces(const std::vector<Piece>& pieces);

}  // namespace trireme
