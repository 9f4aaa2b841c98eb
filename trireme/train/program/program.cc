// SPDX-License-Identifier: Apache-2.0
#include "trireme/train/program/program.h"

#include <fmt/core.h>

#include "trireme/train/trainer.h"

namespace trireme {

Program::~Program() = default;

std::string set_key(const std::string& path, double value) {
  return fmt::format("{}={}", path, value);
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
