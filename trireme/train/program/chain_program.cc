// SPDX-License-Identifier: Apache-2.0
#include "trireme/train/program/chain_program.h"

namespace trireme {

ChainProgram::Tensors ChainProgram::inputs(const MicroBatch& batch) { return {batch.input}; }

ChainProgram::Tensors ChainProgram::run_piece(Network& net, const std::string& path,
                                              const Tensors& inputs, const MicroBatch&) {
  return net.run_list(path, inputs);
}

void ChainProgram::evaluate_outputs(const Tensors& outputs, const MicroBatch& batch,
                                    HeldOutSums& sums) {
  add_terms(loss_of(outputs, batch), batch, sums);
}

LossTerms ChainProgram::loss(Network& net, const MicroBatch& batch) {
  return loss_of(run_all(net, batch), batch);
}

void ChainProgram::evaluate(Network& net, const MicroBatch& batch, HeldOutSums& sums) {
  evaluate_outputs(run_all(net, batch), batch, sums);
}

ChainProgram::Tensors ChainProgram::run_all(Network& net, const MicroBatch& batch) {
  Tensors passed = inputs(batch);
  for (const std::string& path : net.paths()) passed = run_piece(net, path, passed, batch);
  return passed;
}

}  // namespace trireme
