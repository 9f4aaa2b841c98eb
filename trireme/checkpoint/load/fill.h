// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <span>

#include "trireme/checkpoint/load/compare.h"
#include "trireme/checkpoint/load/direct_blocks.h"
#include "trireme/checkpoint/steps/large_pages.h"

namespace trireme {

/// The second walk of a load: everything fits, now it is written. ResourceError when the disk
/// fails; Corrupt for the blocks that are read directly.
class Filler : public StateVisitor {
 public:
  /// All of them must outlive it.
  Filler(const OpenedStep& opened, const LoadPlan& plan, DirectBlocks& direct)
      : opened_(opened), values_(opened.index().values), plan_(plan), direct_(direct) {}

  void tensor(const Slice& slice, at::Tensor local) override;
  void rank_tensor(const std::string& name, int rank, int ranks, RankStateRule rule,
                   at::Tensor local) override;
  void value(const std::string& name, int64_t& v) override { fill(name, v); }
  void value(const std::string& name, double& v) override { fill(name, v); }
  void value(const std::string& name, std::string& v) override { fill(name, v); }
  void constant(const std::string&, const std::string&) override {}  // it was compared
  Purpose purpose() const override { return Purpose::load; }
  /// After the walk. UsageError if it has left out what the first one showed: others may rely on
  /// what this rank was to compare.
  void finish() const;

 private:
  template <class T>
  void fill(const std::string& name, T& v) const {
    if (const auto it = plan_.values.find(name); it != plan_.values.end())
      v = std::get<T>(values_.at(it->second));
  }
  const TensorSource& next(const std::string& name, const at::Tensor& local);
  void fill(const Slice& slice, const TensorSource& source, at::Tensor local);
  size_t number_of(const TensorSource& source) const;  // in the plan
  void fill_in_place(const TensorSource& source, at::Tensor& local);
  void copy(const IndexTensor& saved, std::span<const Copy> copies, at::Tensor& to) const;
  /// body(first element, host memory of some elements from there on, each of which takes at most
  /// `each` bytes), which then become those of `local`, whatever its device, dtype and strides: no
  /// second copy of a large tensor exists.
  template <class Body>
  void for_each_slab(const at::Tensor& local, at::ScalarType dtype, size_t each, const Body& body);
  /// Of so many elements, at most a slab: one of two, which stay.
  at::Tensor host_slab(size_t which, int64_t count, at::ScalarType dtype);

  const OpenedStep& opened_;
  const std::map<std::string, IndexValue>& values_;
  const LoadPlan& plan_;
  DirectBlocks& direct_;
  size_t next_ = 0;
  int64_t under_way_ = 0;  // bytes, to a device
  std::array<LargePages, 2> slabs_;
};

}  // namespace trireme
