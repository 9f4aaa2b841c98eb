// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <memory>
#include <string>

#include "trireme/base/call_site.h"
#include "trireme/base/export.h"
#include "trireme/comm/group.h"
#include "trireme/tensor/parameter_layout.h"

namespace trireme {

/// Over which ranks layers are divided, and how. Every tensor-parallel layer of a model is given a
/// copy; copies share the groups that they make.
///
///   TensorParallel tp(mesh.group("tp"), {.sequence_parallel = true});
///   ColumnParallelLinear up(tp, width, hidden);
///   RowParallelLinear down(tp, hidden, width);
///   y = down.forward(gelu(up.forward(x)));
///
/// Every rank of the group makes the same layers in the same order and runs them, forward and
/// backward, in the same order, on the same input: each rank differentiates one and the same loss,
/// not its own share of it. A rank that does something else ends the group with an error that names
/// both calls (docs/tensor_parallel.md). One thread uses the group at a time.
class TRIREME_API TensorParallel {
 public:
  struct Options {
    /// Between the layers, where activations are whole otherwise, each rank has a part of the
    /// positions (dim 1 of [batch, time, width]): norms, dropout and residuals are divided too.
    bool sequence_parallel = false;
    /// Compares what should be equal on all ranks (inputs of layers, ids, targets) with a small
    /// exchange before it is used: UsageError on every rank, which names the first that differs.
    bool check_inputs = false;
    /// The axis of the mesh, under which layouts say how parameters are divided.
    std::string axis = "tp";
  };

  explicit TensorParallel(Group group);
  TensorParallel(Group group, Options options);  // UsageError for an empty group
  /// Of one rank, which needs no peers: layers that are given it are whole, and the same code runs
  /// undivided.
  static TensorParallel alone();
  /// Of `rank` among `size` ranks that do not exist: layers that are given it have that rank's
  /// parameters and layouts, for planning. What they would compute means nothing.
  static TensorParallel imagined(int rank, int size, Options options);

  const Group& group() const { return group_; }
  int rank() const { return group_.rank(); }
  int size() const { return group_.size(); }
  bool sequence_parallel() const { return options_.sequence_parallel; }
  const std::string& axis() const { return options_.axis; }

  /// The ranks that share something with this one: `count` neighbours, beginning at a multiple of
  /// `count`, which divides size(). The first call for each count is collective over the group.
  Group sharers(int count) const;

  /// With check_inputs: throws UsageError on every rank unless `t` has one shape and the same bits
  /// on all of them. `what` names it in the message. Without it: nothing.
  void check_equal(const at::Tensor& t, const char* what, CallSite site = CallSite::here()) const;

  /// The layout of a parameter that every rank holds whole: its gradients are to be added where
  /// each rank sees a part of the positions, and are equal otherwise.
  ParameterLayout replicated(const at::Tensor& parameter) const;

 private:
  Group group_;
  Options options_;
  std::shared_ptr<std::map<int, Group>> sharers_;
};

namespace detail {
/// A hash of a tensor's shape, dtype and bits, which ranks compare. Waits for the tensor's device.
int64_t digest_of(const at::Tensor& t);
}  // namespace detail

}  // namespace trireme
