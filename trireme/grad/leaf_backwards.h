// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "trireme/base/export.h"
#include "trireme/grad/ddp_tensors.h"
#include "trireme/grad/rounds/leaf_round.h"

namespace torch::nn {
class Module;
}
namespace torch::jit {
struct Module;
}

namespace trireme {

struct DdpOptions;

/// Reproducible mode in somebody's own loop: every backward is a leaf, and `leaves` of them make
/// one round of the reducer. To a HookAdapter each backward looks like a round of its own.
class TRIREME_API LeafBackwards final : public GradientRound {
 public:
  LeafBackwards(Reducer& reducer, int leaves) : round_(reducer), leaves_(leaves) {}

  size_t size() const override { return round_.size(); }
  const at::Tensor& parameter(size_t i) const override { return round_.parameter(i); }
  const std::string& name(size_t i) const override { return round_.name(i); }
  /// A backward begins: the first one of a round opens it.
  void open() override;
  bool is_open() const override { return in_backward_; }
  void ready(size_t i) override { round_.ready(i); }
  void accumulated_outside(size_t i) override { round_.accumulated_outside(i); }
  /// A backward has ended: the last one closes the round.
  void close() override;
  void reset() override;

  /// Leaves of the round under way that have been computed; 0: it is closed.
  int done() const { return done_; }

 private:
  LeafRound round_;
  const int leaves_;
  int done_ = 0;
  bool in_backward_ = false;
};

/// UsageError for what has no place in the tree of sums: numbers of leaves or ranks that are no
/// powers of two, a backend that adds in an order of its own, half-precision parameters, buffers,
/// and options of DistributedDataParallel that make other rounds.
void check_leaves(const Group& group, const DdpOptions& options, const DdpTensors& tensors);
/// UsageError for a module that draws from LibTorch's generator, or that nobody can look into.
void check_leaves(const DdpOptions& options, const torch::nn::Module& module);
void check_leaves(const DdpOptions& options, const torch::jit::Module& module);

}  // namespace trireme
