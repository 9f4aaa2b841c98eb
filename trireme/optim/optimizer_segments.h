// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/Parallel.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "trireme/optim/norm_aten.h"
#include "trireme/optim/norm_kernels.h"
#include "trireme/optim/norm_parts.h"
#include "trireme/optim/optimizer.h"
#include "trireme/tensor/device.h"
#include "trireme/tensor/host_data.h"

// Inside optim: what one step does to one parameter.
namespace trireme {

struct Optimizer::Segment {
  size_t index;  // of the parameter in the table
  at::Tensor parameter;
  at::Tensor gradient;  // contiguous, same dtype, numel and device
  int64_t offset;       // of its state in the flat buffers
  int64_t numel;

  template <class T>
  T* parameters() const {
    return host_data<T>(parameter);
  }
  template <class T>
  const T* gradients() const {
    return host_data<T>(gradient);
  }
  /// Its part of a flat buffer; undefined or null where there is no such buffer.
  at::Tensor of(const at::Tensor& flat) const {
    return flat.defined() ? flat.narrow(0, offset, numel) : at::Tensor();
  }
  template <class T>
  T* of(const at::Tensor& flat) const {
    return flat.defined() ? host_data<T>(flat) + offset : nullptr;
  }
};

/// A list of them; each is made ready as it is taken. Half-precision gradients become float32 then,
/// in memory that the list's next segment uses again: one parameter's, not the model's.
class Optimizer::Segments {
 public:
  explicit Segments(std::vector<Segment> found) : found_(std::move(found)) {}
  size_t size() const { return found_.size(); }
  Segment operator[](size_t i) const;
  /// Not made ready: its gradient may be half-precision.
  const Segment& given(size_t i) const { return found_[i]; }
  /// All of them are where the parameters are.
  bool on_device() const {
    return !found_.empty() && is_asynchronous(found_.front().parameter.device());
  }

  struct Iterator {
    const Segments* all;
    size_t i;
    Segment operator*() const { return (*all)[i]; }
    Iterator& operator++() {
      ++i;
      return *this;
    }
    bool operator!=(const Iterator& o) const { return i != o.i; }
  };
  Iterator begin() const { return {this, 0}; }
  Iterator end() const { return {this, size()}; }

 private:
  std::vector<Segment> found_;
  mutable at::Tensor scratch_;
};

/// pass(begin, end) over [0, numel), on LibTorch's threads where a rank has several. Elements are
/// independent.
template <class Pass>
void for_ranges(int64_t numel, const Pass& pass) {
  constexpr int64_t kGrain = 1 << 16;
  at::parallel_for(0, numel, kGrain, pass);
}

/// The parameter was written behind autograd's back: let saved tensors notice.
inline void bump_version(const at::Tensor& parameter) {
  if (!parameter.is_inference()) parameter.unsafeGetTensorImpl()->bump_version();
}

/// Elements [begin, begin + n) of a segment in CPU memory, of type T.
template <class S, class T>
struct Range {
  const S& segment;
  int64_t begin, n;
  T* p() const { return segment.template parameters<T>() + begin; }
  const T* g() const { return segment.template gradients<T>() + begin; }
  /// Its part of a flat buffer; null where there is no such buffer.
  T* of(const at::Tensor& flat) const {
    return flat.defined() ? segment.template of<T>(flat) + begin : nullptr;
  }
};

/// pass(Range) over a segment in CPU memory; writes the parameter.
template <class S, class Pass>
void run_ranges(const S& segment, const Pass& pass) {
  const auto as = [&](auto type) {
    for_ranges(segment.numel, [&](int64_t begin, int64_t end) {
      pass(Range<S, decltype(type)>{segment, begin, end - begin});
    });
  };
  segment.parameter.scalar_type() == at::kFloat ? as(float()) : as(double());
  bump_version(segment.parameter);
}

/// Two sums of squares of each parameter that some rank holds a part of, and the lists of blocks
/// that they are added from.
class NormPairs {
 public:
  explicit NormPairs(const NormParts& parts)
      : parts_(parts), a_(static_cast<size_t>(parts.blocks()), 0.0), b_(a_) {}

  /// sums(T(), begin, n, a, b) puts norm_blocks(n) values into a and b; begin, in the segment, is a
  /// multiple of kNormBlock.
  template <class S, class Sums>
  void measure(const S& segment, const std::string& name, const Sums& sums) {
    const auto at = static_cast<size_t>(parts_.first_block(name));
    const auto as = [&](auto type) {
      at::parallel_for(0, norm_blocks(segment.numel), 64, [&](int64_t first, int64_t last) {
        const int64_t begin = first * kNormBlock;
        sums(type, begin, std::min(segment.numel, last * kNormBlock) - begin,
             a_.data() + at + first, b_.data() + at + first);
      });
    };
    segment.parameter.scalar_type() == at::kFloat ? as(float()) : as(double());
  }
  /// For a segment that is not in CPU memory: those of two of its tensors, contiguous, as they are
  /// now. The device is waited for once, in add_over_ranks().
  void measure(const std::string& name, const at::Tensor& a, const at::Tensor& b) {
    const auto at = static_cast<size_t>(parts_.first_block(name));
    late_.add(a, a_.data() + at);
    late_.add(b, b_.data() + at);
  }
  /// Over ranks. After that of() is of whole parameters.
  void add_over_ranks() {
    late_.fetch();
    parts_.add_blocks_over_ranks(a_);
    parts_.add_blocks_over_ranks(b_);
  }
  std::pair<double, double> of(const std::string& name) const {
    const auto [first, count] = parts_.range(parts_.index_of(name));
    return {tree_sum(a_.data() + first, count), tree_sum(b_.data() + first, count)};
  }

 private:
  const NormParts& parts_;
  std::vector<double> a_, b_;
  DeviceSquareSums late_;
};

}  // namespace trireme
