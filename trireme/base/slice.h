// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "trireme/base/export.h"

namespace trireme {

/// Elements [begin, begin + count) of a box, row-major.
struct FlatRange {
  int64_t begin = 0, count = 0;
  bool operator==(const FlatRange&) const = default;
};

/// The part of a named global tensor that a rank holds: a box with one offset and one length for
/// each dim, or a flat range of that box's elements (ZeRO cuts parameters so). Pure data;
/// checkpoints describe everything in these terms.
struct Slice {
  std::string name;
  std::vector<int64_t> global_shape;
  std::vector<int64_t> offsets;
  std::vector<int64_t> lengths;
  std::optional<FlatRange> flat = {};  // unset: the whole box

  static Slice whole(std::string name, std::vector<int64_t> shape) {
    std::vector<int64_t> zeros(shape.size(), 0);
    return {std::move(name), shape, std::move(zeros), shape};
  }
  /// Elements [begin, begin + count) of the whole tensor.
  static Slice range(std::string name, std::vector<int64_t> shape, int64_t begin, int64_t count) {
    Slice s = whole(std::move(name), std::move(shape));
    if (begin != 0 || count != s.numel()) s.flat = FlatRange{begin, count};
    return s;
  }
  /// Elements of the box.
  int64_t box_numel() const {
    int64_t n = 1;
    for (auto length : lengths) n *= length;
    return n;
  }
  int64_t numel() const { return flat ? flat->count : box_numel(); }
  bool is_whole() const { return lengths == global_shape && (!flat || flat->count == box_numel()); }
  /// The sizes of a tensor that holds it: the box's, or one dim for a flat range.
  std::vector<int64_t> local_shape() const {
    return flat ? std::vector<int64_t>{flat->count} : lengths;
  }
  bool operator==(const Slice&) const = default;
};

/// A box of a tensor, and where it begins in memory that holds a slice.
struct PlacedBox {
  std::vector<int64_t> offsets, lengths;
  int64_t at = 0;  // elements from the slice's first
  bool operator==(const PlacedBox&) const = default;
};

/// The slice as boxes, in the order of its elements; each lies contiguous in the slice's memory. A
/// plain box is one, a flat range of a tensor of d dims at most 2d - 1. None where it is empty.
TRIREME_API std::vector<PlacedBox> boxes_of(const Slice& slice);

/// What is wrong with the slice in itself ("offset 3 + length 2 is more than 4 in dim 0"), or "".
TRIREME_API std::string fault_of(const Slice& slice);

}  // namespace trireme
