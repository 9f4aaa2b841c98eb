// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "trireme/base/export.h"

namespace trireme {

/// Adds the gradients of a rank's leaves along the binary tree over leaf numbers (design §3,
/// reproducible mode): leaf 0 with 1, 2 with 3, then the pairs. Together with the fixed order of
/// all_reduce over ranks, the sum of M leaves has the same bits on any power of two of ranks. A
/// parameter that a leaf did not use counts as absent (x + absent = x).
///
/// Keeps 1 + log2(leaves) gradients a parameter at most; takes over the tensors that it is given.
class TRIREME_API GradientTree {
 public:
  explicit GradientTree(size_t parameters) : nodes_(parameters) {}
  /// Throws UsageError unless `leaves` is a power of two.
  void open(int leaves);
  int leaves() const { return leaves_; }
  /// Each parameter gets its gradients in the order of the leaves. Different ones may be in
  /// different leaves: a pipeline's stages on one rank take turns.
  void begin_leaf(int leaf);
  /// p's gradient from the current leaf (not shared with anybody, float32 or float64). With the
  /// last leaf the sum is written to `out`: true.
  bool add(size_t p, at::Tensor gradient, const at::Tensor& out);
  /// After the last leaf, for a parameter that it did not use: writes what the others gave. False
  /// where none did.
  bool finish(size_t p, const at::Tensor& out);

 private:
  struct Node {
    int next = 0;                    // leaves accounted for
    std::vector<at::Tensor> levels;  // level k: the sum of 2^k leaves, or undefined
  };
  void push(Node& node, at::Tensor x, const at::Tensor& out);

  int leaves_ = 1, leaf_ = 0;
  std::vector<Node> nodes_;
};

}  // namespace trireme
