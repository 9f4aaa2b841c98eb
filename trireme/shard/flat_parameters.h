// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <string>
#include <vector>

#include "trireme/comm/group.h"
#include "trireme/shard/shard_file.h"
#include "trireme/shard/shard_plan.h"
#include "trireme/tensor/parameter_table.h"
#include "trireme/tensor/storage_mark.h"

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

/// Parameters of one dtype (and one answer to "does it require a gradient?") in one flat buffer, of
/// which each rank owns an equal part. Owns that part, in memory that peers can read
/// (Group::empty); members keep their shape, their identity and a storage each of their own, whose
/// data pointer is set: into a flat buffer while the parameters are whole, to null otherwise.
///
/// Construction writes the part from what the members hold; every rank's members hold the same. Or
/// the part is this rank's place in a flat buffer that is there for good (stages 1 and 2, whose
/// parameters are always whole).
///
/// A member may be given other values by another storage (torch::load(), set_data()): it is
/// *replaced* then. Its pointer is left alone until its values were taken, by the three calls
/// below.
///
/// Given a file, the part lies there while nobody holds it: shard() is undefined then, and its
/// pieces' data pointers are null, or, where somebody else kept a tensor on a piece (a checkpoint
/// that is being written), at a read-only view of the file. Errors of the disk as in
/// offload_file.h.
class FlatParameters {
 public:
  /// `name`: in messages. `file` outlives this; null: the part stays in memory.
  FlatParameters(NamedTensors members, const Group& group, const std::string& name = {},
                 ShardFile* file = nullptr);
  /// `flat_buffer`: of plan_flat_buffer(), written already. The members move there, and keep it
  /// alive.
  FlatParameters(NamedTensors members, const Group& group, const at::Tensor& flat_buffer);
  FlatParameters(const FlatParameters&) = delete;

  /// How the members are placed in a flat buffer of `ranks`. UsageError for one that cannot.
  static ShardPlan plan_flat_buffer(const NamedTensors& members, int ranks);

  const NamedTensors& members() const { return members_; }
  const ShardPlan& plan() const { return plan_; }
  at::ScalarType dtype() const { return c10::typeMetaToScalarType(options_.dtype()); }
  /// A member's, when this was made.
  const std::vector<int64_t>& shape(size_t member) const { return shapes_[member]; }
  bool requires_grad() const { return members_.front().second.requires_grad(); }
  const at::TensorOptions& options() const { return options_; }

  /// This rank's part. Padding is zero.
  const at::Tensor& shard() const { return shard_; }
  const std::vector<ParameterShard>& shards() const { return pieces_; }

  bool in_file() const { return place_.has_value(); }
  /// The part is needed soon. Does not wait.
  void read_ahead();
  /// The part's values, wherever they are.
  void copy_shard_to(const at::Tensor& into);
  /// In memory until the same number of release().
  void hold();
  /// `changed`: pieces may have new values; `maybe`: they are compared with the file first.
  enum class Changed { no, maybe, yes };
  void release(Changed changed);

  /// `flat_buffer` has plan().flat_elements() elements. While it holds everybody's part, members
  /// are whole.
  void point_into(const at::Tensor& flat_buffer);
  void point_at_nothing();

  bool replaced() const;
  /// Some of them were not taken yet.
  bool untaken() const;
  /// The shard's pieces of replaced members get their values, once for each storage; the pieces get
  /// storages of their own anew, so that who keeps something beside them (masters) sees it.
  /// Replaced members have the dtype, device and shape that they had.
  void take_replaced();
  /// Replaced members, taken, lie in the flat buffer again. `fill`: it gets all of their values
  /// first.
  void return_to(const at::Tensor& flat_buffer, bool fill);
  /// Replaced members, taken, point at nothing again.
  void return_to_nothing();

 private:
  void make_pieces();
  void own_storage(size_t member);
  bool replaced(size_t member) const { return home_[member].moved(members_[member].second); }
  void mark_storage();
  void point_pieces();

  NamedTensors members_;
  at::TensorOptions options_;
  std::vector<std::vector<int64_t>> shapes_;
  std::vector<StorageMark> home_, taken_;  // what members have from here; whose values are taken
  ShardPlan plan_;
  int rank_;
  at::Tensor shard_;
  std::vector<ParameterShard> pieces_;
  ShardFile* file_;
  std::optional<OffloadedTensor> place_;  // in the file
  int holds_ = 0;
  bool changed_ = false, maybe_changed_ = false;  // since it was brought
};

/// Fills the flat buffer from the members, which are whole; padding is zero.
void write_flat_buffer(const at::Tensor& flat_buffer, const ShardPlan& plan,
                       const NamedTensors& members);

/// `numel` elements of `memory` from `offset` on as a tensor that autograd does not count as a
/// view, in that shape. Keeps the memory alive.
at::Tensor alias_of(const at::Tensor& memory, int64_t offset, at::IntArrayRef sizes);

}  // namespace trireme
