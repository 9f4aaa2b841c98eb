// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "trireme/grad/ddp_tensors.h"
#include "trireme/grad/rounds/replaced_parameters.h"
#include "trireme/shard/flat_parameters.h"
#include "trireme/shard/gradient_scatter.h"
#include "trireme/shard/model_stages.h"
#include "trireme/shard/sharded_parameters.h"

namespace trireme {

struct ReplicatedOptions {
  ZeroStage stage = ZeroStage::gradients;  // or optimizer
  size_t bucket_bytes = 0;                 // 0: what suits the backend
  ReduceOp op = ReduceOp::avg;
  bool tree = false;                        // reproducible mode: each round a leaf, in both stages
  std::optional<at::ScalarType> wire = {};  // gradients between ranks; none: the parameters' dtype
  /// One copy of the parameters for all ranks of the host, in which each updates its part.
  bool share_weights = false;
  ModelStages stages = {};  // of the pipeline that this rank has
};

/// Stages 1 and 2 without who drives backward: parameters are whole on every rank and lie bucket by
/// bucket in flat buffers, of which each rank's optimizer owns a part.
class ReplicatedParameters final : public ShardedParameters {
 public:
  /// Checks that ranks hold the same, takes rank 0's values, and moves the parameters (not the
  /// tensors' identity) into memory that peers read.
  ReplicatedParameters(const DdpTensors& tensors, ShardGroups groups,
                       const ReplicatedOptions& options);
  ~ReplicatedParameters() override;

  void publish() override;
  using ShardedParameters::add_layouts;
  /// A round of gradients begins, or its record has not left yet: parameters that were replaced
  /// since the last one are noted. False: they are others than those that were sharded.
  bool look() { return replaced_->look(); }
  /// … or all ranks are told, and this one throws UsageError.
  void look_or_end();
  /// After a round whose record was read, on every rank: replaced parameters are in the flat
  /// buffers again, with their new values. Throws where ranks were not given the same ones.
  void follow();
  GradientScatter& gradients() { return *scatter_; }
  const GradientScatter& gradients() const { return *scatter_; }

 private:
  struct FlatBuffer {
    std::unique_ptr<FlatParameters> flat;
    at::Tensor memory;
  };
  at::Tensor make_flat_buffer(const NamedTensors& members);
  void complete() override;

  std::vector<FlatBuffer> buffers_;
  bool shared_ = false;
  std::unique_ptr<GradientScatter> scatter_;
  std::unique_ptr<ReplacedParameters> replaced_;
};

}  // namespace trireme
