// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "trireme/base/export.h"
#include "trireme/train/program/program.h"

namespace trireme {

/// A program whose pieces follow each other: each runs once a micro-batch, on what the piece before
/// it returned. Such a program trains as a pipeline too (parallelism.pp): then a rank makes and
/// runs the pieces of its stages alone, which Piece::cost or a measurement divides.
///
///   struct Deep : trireme::ChainProgram {
///     Pieces make(const Config&) override {
///       Pieces all{piece("stem", [] { return Stem(); })};
///       for (int i = 0; i < 8; ++i)
///         all.push_back(piece("blocks." + std::to_string(i), [] { return Block(); }));
///       return all;
///     }
///     LossTerms loss_of(const Tensors& outputs, const MicroBatch& b) override {
///       return {{"loss", cross_entropy_sum(outputs[0], b.target)}};
///     }
///   };
///
/// All ranks of one copy of the model see the same micro-batches, so positions and masks reach
/// every piece in `batch`, and only what is differentiated needs to pass from piece to piece: up to
/// 8 dense tensors between two stages. In a pipeline there is one update, of all pieces. The pieces
/// may be divided besides (Program::make_divided()).
class TRIREME_API ChainProgram : public Program {
 public:
  using Tensors = std::vector<at::Tensor>;

  /// Returns the inputs of the first piece: by default the micro-batch's `input`.
  virtual Tensors inputs(const MicroBatch& batch);
  /// Runs one piece on what the piece before it returned. Override it for what is between pieces,
  /// or to give a piece more of the micro-batch. It must not change its inputs in place.
  virtual Tensors run_piece(Network& net, const std::string& path, const Tensors& inputs,
                            const MicroBatch& batch);
  /// Returns the terms of the loss (Program::loss) from what the last piece returned.
  virtual LossTerms loss_of(const Tensors& outputs, const MicroBatch& batch) = 0;
  /// Evaluates what the last piece returned for a micro-batch of held-out data
  /// (Program::evaluate). The default adds each term of loss_of().
  virtual void evaluate_outputs(const Tensors& outputs, const MicroBatch& batch, HeldOutSums& sums);

  LossTerms loss(Network& net, const MicroBatch& batch) final;
  void evaluate(Network& net, const MicroBatch& batch, HeldOutSums& sums) final;

 private:
  Tensors run_all(Network& net, const MicroBatch& batch);
};

}  // namespace trireme
