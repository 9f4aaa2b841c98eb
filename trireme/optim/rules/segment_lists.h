// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/cat.h>
#include <c10/core/GradMode.h>

#include <cstdint>
#include <vector>

#include "trireme/optim/optimizer_segments.h"

// Inside optim: segments on a device as lists, because LibTorch's _foreach_ operators launch once
// for many tensors. What they make in between is as large as what they are given, so a list has
// kListElements at most, or one segment that is larger.
namespace trireme {

constexpr int64_t kListElements = int64_t{1} << 24;

/// Some of a step's segments: none is empty, and their gradients have one dtype. Flat tensors.
template <class Segment>
class SegmentLists {
 public:
  void add(size_t place, const Segment& s) {
    places_.push_back(place);
    segments_.push_back(s);
    elements_ += s.numel;
    p.push_back(s.parameter.view({s.numel}));
    g.push_back(s.gradient.view({s.numel}));
  }
  bool has_room_for(const Segment& s) const {
    return segments_.empty() || (elements_ + s.numel <= kListElements &&
                                 s.gradient.scalar_type() == segments_[0].gradient.scalar_type());
  }
  /// The parameters' dtype for gradients, with two launches.
  void widen_gradients() {
    if (g.empty() || g[0].scalar_type() == p[0].scalar_type()) return;
    std::vector<int64_t> sizes;
    for (const Segment& s : segments_) sizes.push_back(s.numel);
    g = at::cat(g).to(p[0].scalar_type()).split_with_sizes(sizes);
  }
  /// Their parts of a flat buffer; an empty list if there is no such buffer.
  std::vector<at::Tensor> of(const at::Tensor& flat) const {
    std::vector<at::Tensor> parts;
    if (flat.defined())
      for (const Segment& s : segments_) parts.push_back(s.of(flat));
    return parts;
  }
  /// Theirs among what there is one of for each of the step's segments.
  template <class T>
  std::vector<T> of(const std::vector<T>& each) const {
    std::vector<T> theirs;
    for (size_t place : places_) theirs.push_back(each[place]);
    return theirs;
  }
  const std::vector<size_t>& places() const { return places_; }
  bool empty() const { return segments_.empty(); }

  std::vector<at::Tensor> p, g;

 private:
  std::vector<size_t> places_;  // among the step's segments
  std::vector<Segment> segments_;
  int64_t elements_ = 0;
};

/// pass(lists) over all segments, which are on a device; writes the parameters.
template <class Segments, class Pass>
void for_lists(const Segments& all, const Pass& pass) {
  using Segment = std::decay_t<decltype(all[0])>;
  c10::AutoGradMode no_grad(false);
  for (size_t i = 0; i < all.size();) {
    SegmentLists<Segment> lists;
    const size_t first = i;
    for (; i < all.size() && (all.given(i).numel == 0 || lists.has_room_for(all.given(i))); ++i)
      if (all.given(i).numel > 0) lists.add(i, all.given(i));
    if (lists.empty()) continue;
    lists.widen_gradients();
    pass(lists);
    for (size_t place = first; place < i; ++place) bump_version(all.given(place).parameter);
  }
}

}  // namespace trireme
