// SPDX-License-Identifier: Apache-2.0
#include "trireme/checkpoint/steps/load_plan.h"

#include <algorithm>
#include <optional>

namespace trireme {
namespace {

/// A PlacedBox of somebody else's.
struct BoxView {
  const std::vector<int64_t>&offsets, &lengths;
  int64_t at = 0;
};

std::optional<Copy> overlap(const BoxView& saved, const BoxView& wanted) {
  Copy copy{.from = saved.at, .to = wanted.at, .run = 1};
  int64_t from_stride = 1, to_stride = 1;
  bool neighbours = true;  // what lies behind this dim is whole on both sides
  for (size_t d = saved.lengths.size(); d-- > 0;) {
    const int64_t begin = std::max(saved.offsets[d], wanted.offsets[d]);
    const int64_t end =
        std::min(saved.offsets[d] + saved.lengths[d], wanted.offsets[d] + wanted.lengths[d]);
    if (begin >= end) return std::nullopt;
    const int64_t length = end - begin;
    copy.from += (begin - saved.offsets[d]) * from_stride;
    copy.to += (begin - wanted.offsets[d]) * to_stride;
    if (neighbours)
      copy.run *= length;
    else if (length > 1)
      copy.loops.push_back({length, from_stride, to_stride});
    neighbours = neighbours && length == saved.lengths[d] && length == wanted.lengths[d];
    from_stride *= saved.lengths[d], to_stride *= wanted.lengths[d];
  }
  std::reverse(copy.loops.begin(), copy.loops.end());
  return copy;
}

/// body(box) for each box of the slice, seen in this shape.
template <class Body>
void for_each_box(const Slice& slice, const std::vector<int64_t>& shape, const Body& body) {
  if (!slice.flat && slice.global_shape == shape)  // as nearly all are
    return body({slice.offsets, slice.lengths});
  for (const PlacedBox& box : boxes_of(reshaped(slice, shape)))
    body({box.offsets, box.lengths, box.at});
}

}  // namespace

Slice reshaped(const Slice& s, const std::vector<int64_t>& shape) {
  if (s.global_shape == shape) return s;
  int64_t begin = s.flat ? s.flat->begin : 0;
  if (s.global_shape.size() == 1) begin += s.offsets[0];
  return Slice::range(s.name, shape, begin, s.numel());
}

std::vector<Copy> plan_load(const IndexTensor& saved, const Slice& wanted) {
  // Most state of most runs is one part that is wanted as it was saved.
  if (saved.parts.size() == 1 && wanted.is_whole() && saved.parts[0].slice.is_whole() &&
      wanted.global_shape == saved.shape() && wanted.numel() > 0)
    return {{.run = wanted.numel()}};
  // Of [n] and a shape of n elements the flat one is seen in the other's shape.
  const bool wanted_is_flat = wanted.global_shape.size() == 1;
  const std::vector<int64_t>& shape = wanted_is_flat ? saved.shape() : wanted.global_shape;
  std::vector<Copy> copies;
  std::vector<PlacedBox> targets;
  for_each_box(wanted, shape, [&](const BoxView& box) {
    targets.push_back({box.offsets, box.lengths, box.at});
  });
  for (size_t i = 0; i < saved.parts.size(); ++i)
    for_each_box(saved.parts[i].slice, shape, [&](const BoxView& box) {
      for (const PlacedBox& target : targets)
        if (auto copy = overlap(box, {target.offsets, target.lengths, target.at})) {
          copy->part = i;
          copies.push_back(std::move(*copy));
        }
    });
  return copies;
}

}  // namespace trireme
