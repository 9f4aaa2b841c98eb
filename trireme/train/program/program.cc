// SPDX-License-Identifier: Apache-2.0
#include "trireme/train/program/program.h"

#include <fmt/core.h>

#include "trireme/base/check.h"
#include "trireme/train/trainer.h"

namespace trireme {

Program::~Program() = default;

std::string set_key(const std::string& path, double value) {
  return fmt::format("{}={}", path, value);
}

Program::Pieces Program::make(const Config& config) {
  return make_divided(config, TensorParallel::alone());
}

Program::Pieces Program::make_divided(const Config& config, const TensorParallel& tp) {
  check<UsageError>(tp.size() > 1, "Program::make(): override it, or make_divided()");
  fail<UsageError>(
      "parallelism.tp {} ({}): every rank would hold the pieces of this program whole. Override "
      "Program::make_divided() and make them of layers that are divided over ranks "
      "(docs/your_own_model.md), or leave the key out",
      tp.size(), config.origin("parallelism.tp"));
}

void Program::step(Trainer& trainer) { trainer.update("all", trainer.next_batch()); }

void Program::evaluate(Network& net, const MicroBatch& batch, HeldOutSums& sums) {
  add_terms(loss(net, batch), batch, sums);
}

void Program::add_terms(const LossTerms& terms, const MicroBatch& batch, HeldOutSums& sums) {
  const TermWeights weights = this->weights(batch);
  for (const auto& [name, sum] : terms) {
    double weight = static_cast<double>(batch.weight);
    for (const auto& [term, w] : weights)
      if (term == name) weight = w;
    sums.add("held_out_" + name, sum.item<double>(), weight);
  }
}

void HeldOutSums::add(const std::string& name, double sum, double weight) {
  for (Sum& one : sums_)
    if (one.name == name) {
      one.sum += sum;
      one.weight += weight;
      return;
    }
  sums_.push_back({name, sum, weight});
}

}  // namespace trireme
