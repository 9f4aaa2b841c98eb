// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "trireme/base/export.h"
#include "trireme/config/config.h"
#include "trireme/config/key_table.h"
#include "trireme/data/batch.h"
#include "trireme/data/source.h"
#include "trireme/tensor/state.h"
#include "trireme/train/program/network.h"
#include "trireme/train/program/piece.h"

namespace trireme {

class Trainer;
class HeldOutSums;

/// Where a program's samples come from. None: the program makes its batches in step().
struct Sources {
  std::shared_ptr<const DataSource> train = nullptr, held_out = nullptr;
  /// A resumed run must be of the same data: a name with its size or a hash.
  std::string identity = {};
  /// What a sample weighs (MicroBatch::weight): 1, or its tokens.
  int64_t weight_per_sample = 1;
};

/// Parameters that one optimizer steps on, and how it differs from the configuration's.
struct Update {
  std::string name;
  std::vector<std::string> pieces;  // their paths
  /// "optimizer.type=SGD", set_key("optimizer.params.lr", lr): set for this one on top of the
  /// configuration. Values of the configuration that mean nothing beside them are left out.
  std::vector<std::string> sets = {};
};
/// "path=value", with all digits that the value has (std::to_string() keeps six behind the point).
TRIREME_API std::string set_key(const std::string& path, double value);

/// Each term of a loss: its name, and its sum over the micro-batch, a scalar.
using LossTerms = std::vector<std::pair<std::string, at::Tensor>>;
/// For each term, what this micro-batch adds to the number that its sum is divided by.
using TermWeights = std::vector<std::pair<std::string, double>>;

/// A model of one's own, trained with all that `trireme train` has: the launcher's flags, the
/// configuration with ZeRO, precision, recomputation, balance, reproducible mode and compression,
/// checkpoints and resuming. Only make() and loss() must be there:
///
///   struct Digits : trireme::Program {
///     Pieces make(const Config&) override { return {piece("net", [] { return Net(); })}; }
///     Sources data(const Config&) override { … }
///     LossTerms loss(Network& net, const MicroBatch& b) override {
///       return {{"loss", cross_entropy_sum(net.run("net", b.input), b.target)}};
///     }
///   };
///   int main(int argc, char** argv) { return trireme::train_main<Digits>(argc, argv); }
///
/// Every rank has an object of it and makes the same calls in the same order, from one thread.
class TRIREME_API Program {
 public:
  using Pieces = std::vector<Piece>;
  virtual ~Program();

  /// Adds sections of the program's own to the keys that a configuration may have. Called on an
  /// object of its own, before any other function.
  virtual void keys(KeyTable& /*table*/) {}
  /// The model, in the order in which a forward runs through it.
  virtual Pieces make(const Config& config) = 0;
  /// {}: one update, "all", of all pieces. Pieces in no update are not trained; they are saved, and
  /// hold rank 0's values.
  virtual std::vector<Update> updates(const Config& /*config*/) { return {}; }
  virtual Sources data(const Config& /*config*/) { return {}; }
  /// What training minimises: the sum of the terms, each divided by its weight over all ranks.
  virtual LossTerms loss(Network& net, const MicroBatch& batch) = 0;
  /// {}: each term weighs what the micro-batch does (its `weight`). Otherwise it names every term.
  virtual TermWeights weights(const MicroBatch& /*batch*/) { return {}; }
  /// One step of training.steps. As it stands: one update of "all" with the next batch.
  virtual void step(Trainer& trainer);
  /// Of one micro-batch of held-out data, under NoGradGuard: adds to the sums that are reported. As
  /// it stands: each term of loss().
  virtual void evaluate(Network& net, const MicroBatch& batch, HeldOutSums& sums);
  /// What a checkpoint holds beside pieces, optimizers and the step (a replay buffer, running
  /// statistics). The same on every rank.
  virtual void state(StateVisitor& /*visitor*/) {}
};

/// Named sums over the held-out data and all ranks.
class TRIREME_API HeldOutSums {
 public:
  /// The mean is reported as `name`. Every rank adds the same names; weight: what `sum` is over.
  void add(const std::string& name, double sum, double weight);
  struct Sum {
    std::string name;
    double sum = 0, weight = 0;
  };
  std::vector<Sum>& all() { return sums_; }

 private:
  std::vector<Sum> sums_;
};

}  // namespace trireme
