// SPDX-License-Identifier: Apache-2.0
#include "trireme/checkpoint/steps/load_plan.h"

#include <algorithm>
#include <optional>

namespace trireme {
namespace {

// Strides of a contiguous box.
std::vector<int64_t> strides_of(const std::vector<int64_t>& lengths) {
  std::vector<int64_t> strides(lengths.size(), 1);
  for (size_t d = lengths.size(); d-- > 1;) strides[d - 1] = strides[d] * lengths[d];
  return strides;
}

std::optional<Copy> overlap(const PlacedBox& saved, const PlacedBox& wanted) {
  const size_t dims = saved.lengths.size();
  std::vector<int64_t> lengths(dims);
  const auto from_strides = strides_of(saved.lengths), to_strides = strides_of(wanted.lengths);
  Copy copy;
  copy.from = saved.at, copy.to = wanted.at;
  for (size_t d = 0; d < dims; ++d) {
    const int64_t begin = std::max(saved.offsets[d], wanted.offsets[d]);
    const int64_t end =
        std::min(saved.offsets[d] + saved.lengths[d], wanted.offsets[d] + wanted.lengths[d]);
    if (begin >= end) return std::nullopt;
    lengths[d] = end - begin;
    copy.from += (begin - saved.offsets[d]) * from_strides[d];
    copy.to += (begin - wanted.offsets[d]) * to_strides[d];
  }
  // Dims that are whole on both sides are neighbours of the one before them.
  copy.run = 1;
  size_t d = dims;
  while (d > 0) {
    --d;
    copy.run *= lengths[d];
    if (lengths[d] != saved.lengths[d] || lengths[d] != wanted.lengths[d]) break;
  }
  for (size_t outer = 0; outer < d; ++outer)
    if (lengths[outer] > 1)
      copy.loops.push_back({lengths[outer], from_strides[outer], to_strides[outer]});
  return copy;
}

bool touch(const Slice& box, const PlacedBox& wanted) {
  for (size_t d = 0; d < wanted.lengths.size(); ++d)
    if (box.offsets[d] >= wanted.offsets[d] + wanted.lengths[d] ||
        wanted.offsets[d] >= box.offsets[d] + box.lengths[d])
      return false;
  return true;
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
  const std::vector<PlacedBox> targets = boxes_of(reshaped(wanted, shape));
  std::vector<Copy> copies;
  for (size_t i = 0; i < saved.parts.size(); ++i) {
    const Slice& part = saved.parts[i].slice;
    // Of thousands of parts a rank wants a few: those that it does not are passed over at once.
    if (part.global_shape == shape && !part.flat &&
        std::none_of(targets.begin(), targets.end(),
                     [&](const PlacedBox& target) { return touch(part, target); }))
      continue;
    for (const PlacedBox& box : boxes_of(reshaped(part, shape)))
      for (const PlacedBox& target : targets)
        if (auto copy = overlap(box, target)) {
          copy->part = i;
          copies.push_back(std::move(*copy));
        }
  }
  return copies;
}

}  // namespace trireme
