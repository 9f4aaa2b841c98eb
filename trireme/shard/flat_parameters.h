// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "trireme/comm/group.h"
#include "trireme/shard/shard_plan.h"
#include "trireme/tensor/parameter_table.h"

namespace trireme {

/// A rank's part of a parameter: a 1-D leaf that an optimizer steps on. Its grad() is the same part
/// of the reduced gradient.
struct ParameterShard {
  std::string name;  // of the parameter
  at::Tensor tensor;
  std::vector<int64_t> shape;  // the parameter's
  int64_t begin = 0;           // in the flattened parameter
  size_t member = 0;           // which of its FlatParameters
  int64_t offset = 0;          // in the shard
};

/// Parameters of one dtype (and one answer to "does it require a gradient?") on one line of which
/// each rank owns an equal part. Owns that part, in memory that peers can read (Group::empty);
/// members keep their shape, their identity and a storage each of their own, whose data pointer is
/// set: into a line while the parameters are whole, to null otherwise.
///
/// Construction writes the part from what the members hold; every rank's members hold the same.
class FlatParameters {
 public:
  FlatParameters(NamedTensors members, const Group& group);
  FlatParameters(const FlatParameters&) = delete;

  const NamedTensors& members() const { return members_; }
  const ShardPlan& plan() const { return plan_; }
  at::ScalarType dtype() const { return members_.front().second.scalar_type(); }
  bool requires_grad() const { return members_.front().second.requires_grad(); }
  at::TensorOptions options() const;

  /// This rank's part. Padding is zero.
  const at::Tensor& shard() const { return shard_; }
  const std::vector<ParameterShard>& shards() const { return pieces_; }

  /// `line` has plan().line() elements. While it holds everybody's part, members are whole.
  void point_into(const at::Tensor& line);
  void point_at_nothing();
  /// The shard moves into rank's part of the line for good (stages 1 and 2, whose parameters are
  /// always whole). The line must hold everything.
  void live_in(const at::Tensor& line);
  /// Fills the line from the members, which are whole.
  void write_line(const at::Tensor& line) const;

 private:
  void own_storages();

  NamedTensors members_;
  ShardPlan plan_;
  int rank_;
  at::Tensor shard_;
  std::vector<ParameterShard> pieces_;
};

/// `numel` elements of `memory` from `offset` on as a tensor that autograd does not count as a
/// view, in that shape. Keeps the memory alive.
at::Tensor alias_of(const at::Tensor& memory, int64_t offset, at::IntArrayRef sizes);

}  // namespace trireme
