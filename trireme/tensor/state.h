// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <string>

#include "trireme/base/slice.h"

// How every component with state exposes it: state(visitor) names its tensors (with the slice of
// the global tensor that this rank holds) and its small values. The same walk saves and loads: a
// saving visitor reads, a loading visitor writes in place. Names are dotted paths, unique within
// one walk: "model.blocks.0.attn.qkv.weight", "optim.exp_avg.blocks.0…", "train.step".
namespace trireme {

class StateVisitor {
 public:
  virtual ~StateVisitor() = default;
  /// `local` has slice.lengths as its sizes (or their product, flat) and is contiguous. Written in
  /// place on load.
  virtual void tensor(const Slice& slice, at::Tensor local) = 0;
  virtual void value(const std::string& name, int64_t& v) = 0;
  virtual void value(const std::string& name, double& v) = 0;
  virtual void value(const std::string& name, std::string& v) = 0;

  /// The common case: this rank holds the whole tensor.
  void tensor(const std::string& name, at::Tensor whole) {
    tensor(Slice::whole(name, whole.sizes().vec()), whole);
  }
};

using StateWalk = std::function<void(StateVisitor&)>;

}  // namespace trireme
