// SPDX-License-Identifier: Apache-2.0
#include "trireme/base/slice.h"

#include <fmt/format.h>

#include <algorithm>

namespace trireme {
namespace {

class BoxCutter {
 public:
  explicit BoxCutter(const Slice& slice) : slice_(slice) {
    rows_.assign(slice.lengths.size() + 1, 1);
    for (size_t d = slice.lengths.size(); d-- > 0;) rows_[d] = rows_[d + 1] * slice.lengths[d];
    box_ = {slice.offsets, slice.lengths, 0};
  }

  // Elements [begin, end) of what is left of the box from `dim` on; the dims before it are fixed.
  void cut(size_t dim, int64_t begin, int64_t end) {
    if (begin >= end) return;
    if (end - begin == rows_[dim])
      return take(dim, 0, dim < slice_.lengths.size() ? slice_.lengths[dim] : 0);
    const int64_t row = rows_[dim + 1];
    const int64_t first = begin / row, last = (end - 1) / row;
    if (first == last) return inside(dim, first, begin - first * row, end - first * row);
    int64_t full = first;
    if (begin > first * row) inside(dim, first, begin - first * row, row), ++full;
    const int64_t full_end = end / row;
    if (full < full_end) take(dim, full, full_end - full);
    if (end > full_end * row) inside(dim, full_end, 0, end - full_end * row);
  }

  std::vector<PlacedBox> found;

 private:
  void inside(size_t dim, int64_t index, int64_t begin, int64_t end) {
    fix(dim, index, 1);
    cut(dim + 1, begin, end);
  }
  void fix(size_t dim, int64_t index, int64_t length) {
    box_.offsets[dim] = slice_.offsets[dim] + index;
    box_.lengths[dim] = length;
  }
  // Rows [index, index + length) of `dim`, with all of the dims behind it.
  void take(size_t dim, int64_t index, int64_t length) {
    if (dim < slice_.lengths.size()) fix(dim, index, length);
    for (size_t d = dim + 1; d < slice_.lengths.size(); ++d) fix(d, 0, slice_.lengths[d]);
    found.push_back(box_);
    found.back().at = taken_;
    int64_t numel = 1;
    for (int64_t n : box_.lengths) numel *= n;
    taken_ += numel;
  }

  const Slice& slice_;
  std::vector<int64_t> rows_;  // elements of the box from this dim on
  PlacedBox box_;
  int64_t taken_ = 0;
};

}  // namespace

std::vector<PlacedBox> boxes_of(const Slice& slice) {
  BoxCutter cutter(slice);
  const int64_t begin = slice.flat ? slice.flat->begin : 0;
  cutter.cut(0, begin, begin + slice.numel());
  return std::move(cutter.found);
}

std::string fault_of(const Slice& s) {
  if (s.offsets.size() != s.global_shape.size() || s.lengths.size() != s.global_shape.size())
    return fmt::format("{} offsets and {} lengths for {} dims", s.offsets.size(), s.lengths.size(),
                       s.global_shape.size());
  int64_t numel = 1;
  for (size_t d = 0; d < s.global_shape.size(); ++d) {
    const int64_t size = s.global_shape[d];
    if (size < 0 || s.offsets[d] < 0 || s.lengths[d] < 0 || s.offsets[d] > size ||
        s.lengths[d] > size - s.offsets[d])
      return fmt::format("offset {} and length {} do not fit into the size {} of dim {}",
                         s.offsets[d], s.lengths[d], size, d);
    if (size > 0 && __builtin_mul_overflow(numel, size, &numel))
      return "a shape of more than 2^63 elements";
  }
  if (s.flat && (s.flat->begin < 0 || s.flat->count < 0 || s.flat->begin > s.box_numel() ||
                 s.flat->count > s.box_numel() - s.flat->begin))
    return fmt::format("elements {} to {} of a box of {}", s.flat->begin,
                       s.flat->begin + s.flat->count - 1, s.box_numel());
  return "";
}

}  // namespace trireme
