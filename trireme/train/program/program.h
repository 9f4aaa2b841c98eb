// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "trireme/base/export.h"
#include "trireme/comm/group.h"
#include "trireme/config/config.h"
#include "trireme/config/key_table.h"
#include "trireme/data/batch.h"
#include "trireme/data/source.h"
#include "trireme/layers/tensor_parallel/tensor_parallel.h"
#include "trireme/tensor/state.h"
#include "trireme/train/program/network.h"
#include "trireme/train/program/piece.h"

namespace trireme {

class Trainer;
class HeldOutSums;

/// A program's data sets. If both are null, the program makes its own batches in step().
struct Sources {
  std::shared_ptr<const DataSource> train = nullptr, held_out = nullptr;
  /// Identifies the data (a name with its size or a hash); a resumed run must have the same one.
  std::string identity = {};
  /// The weight of a sample (MicroBatch::weight): 1, or its number of tokens.
  int64_t weight_per_sample = 1;
};

/// The parameters that one optimizer updates, and how that optimizer differs from the
/// configuration's.
struct Update {
  std::string name;
  std::vector<std::string> pieces;  // paths of pieces
  /// Settings such as "optimizer.type=SGD" or set_key("optimizer.params.lr", lr), which override
  /// the configuration for this update. Configured values that do not apply to them are dropped.
  std::vector<std::string> sets = {};
};
/// Returns "path=value" with all digits of the value (std::to_string() keeps only six decimals).
TRIREME_API std::string set_key(const std::string& path, double value);

/// Each term of a loss: its name and its sum over the micro-batch, a scalar.
using LossTerms = std::vector<std::pair<std::string, at::Tensor>>;
/// For each term, this micro-batch's share of the weight that the sum is divided by.
using TermWeights = std::vector<std::pair<std::string, double>>;

/// Your own model, trained with everything that `trireme train` offers: the launcher's flags, the
/// configuration with ZeRO, precision, recomputation, balance, reproducible mode and compression,
/// checkpoints and resuming. Only make() (or make_divided()) and loss() are required:
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
/// Every rank has its own Program object and makes the same calls in the same order, from one
/// thread.
class TRIREME_API Program {
 public:
  using Pieces = std::vector<Piece>;
  virtual ~Program();

  /// Adds the program's own sections to the configuration's keys. Called before any other function,
  /// on a separate object.
  virtual void keys(KeyTable& /*table*/) {}
  /// Returns the pieces of the model, in the order in which a forward runs through them. The
  /// default is make_divided() with one rank.
  virtual Pieces make(const Config& config);
  /// The same for parallelism.tp: pieces with layers of which each rank of `tp` holds a part
  /// (layers/tensor_parallel), and whatever else they are made of, which every rank then holds
  /// alike. A program that overrides it alone trains undivided, too. Parameters of those layers
  /// that a piece leaves unset begin as models/init.h's init_unset() says; with any number of ranks
  /// they begin alike. All ranks of `tp` compute the same loss. Called before ranks start as well,
  /// with ranks that are imagined, to see whether a program has it: only the pieces' own make is to
  /// make modules. The default refuses.
  virtual Pieces make_divided(const Config& config, const TensorParallel& tp);
  /// Returns the updates; {} means one update, "all", of all pieces. Pieces in no update are saved
  /// but not trained, and hold rank 0's values.
  virtual std::vector<Update> updates(const Config& /*config*/) { return {}; }
  virtual Sources data(const Config& /*config*/) { return {}; }
  /// Returns the terms of the loss. Training minimises their sum, each divided by its weight over
  /// all ranks.
  virtual LossTerms loss(Network& net, const MicroBatch& batch) = 0;
  /// Returns the weight of every term; {} gives each term the micro-batch's own `weight`.
  virtual TermWeights weights(const MicroBatch& /*batch*/) { return {}; }
  /// Performs one step of training.steps. The default runs one update of "all" with the next batch.
  virtual void step(Trainer& trainer);
  /// Evaluates one micro-batch of held-out data, under NoGradGuard, and adds to the reported sums.
  /// The default adds each term of loss().
  virtual void evaluate(Network& net, const MicroBatch& batch, HeldOutSums& sums);
  /// Called on every rank after all held-out data, with the sums over all ranks, of which the first
  /// is what checkpoint.keep_best compares. Adds figures that are no means over samples, from what
  /// evaluate() collected (HeldOutSums::counts()) and `group`, all ranks of the run, gathers. Every
  /// rank must end with the same sums.
  virtual void evaluated(HeldOutSums& /*sums*/, Group /*group*/) {}
  /// Visits what a checkpoint holds besides pieces, optimizers and the step (a replay buffer,
  /// running statistics). It must be the same on every rank.
  virtual void state(StateVisitor& /*visitor*/) {}

 protected:
  /// Adds each term as "held_out_NAME", with the weight that weights() or the micro-batch gives it.
  void add_terms(const LossTerms& terms, const MicroBatch& batch, HeldOutSums& sums);
};

/// Named sums over the held-out data and all ranks.
class TRIREME_API HeldOutSums {
 public:
  /// Adds to the mean reported as `name`. Every rank must add the same names. `weight` is the
  /// number of items in `sum`; a mean of no items is not reported.
  void add(const std::string& name, double sum, double weight);
  struct Sum {
    std::string name;
    double sum = 0, weight = 0;
  };
  std::vector<Sum>& all() { return sums_; }
  /// False for a micro-batch that another rank counts, and this one runs only because forwards are
  /// collective: what is added is dropped, and what a program collects by itself it must leave out.
  bool counts() const { return counts_; }
  void set_counts(bool counts) { counts_ = counts; }

 private:
  std::vector<Sum> sums_;
  bool counts_ = true;
};

}  // namespace trireme
