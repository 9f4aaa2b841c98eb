// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "trireme/base/export.h"
#include "trireme/tensor/parameter_table.h"

namespace trireme {

/// Which layer of a model is being computed, for a sentence about what went wrong there. The layer
/// is the one whose parameter an operator took last; in backward, the one whose forward made the
/// node.
class TRIREME_API LayerWatch {
 public:
  explicit LayerWatch(const NamedTensors& parameters);
  ~LayerWatch();
  LayerWatch(const LayerWatch&) = delete;

  /// In this scope LibTorch tells of each operator that this thread calls, and of each node of the
  /// backward that it starts. That slows operators down: it is for a first micro-batch. One scope a
  /// thread.
  class TRIREME_API Scope {
   public:
    explicit Scope(LayerWatch& watch);
    ~Scope();
    Scope(const Scope&) = delete;

   private:
    uint64_t thread_ = 0, callback_ = 0;
  };

  /// "layer 'blocks.0.mlp.up'", "the backward of layer 'blocks.0.mlp.up'"; "the model" where no
  /// parameter has been taken yet.
  std::string where() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace trireme
