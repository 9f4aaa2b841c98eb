// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "trireme/base/export.h"
#include "trireme/checkpoint/steps/index.h"

// From which parts that were saved a wanted slice is put together. Pure; counts elements.
namespace trireme {

/// A box of elements that lie in a saved part and in the wanted slice: `run` neighbours, repeated
/// by the loops.
struct Copy {
  struct Loop {
    int64_t count, from_stride, to_stride;
    bool operator==(const Loop&) const = default;
  };
  size_t part = 0;               // of the saved tensor
  int64_t from = 0, to = 0;      // first element, in the part and in the wanted slice
  int64_t run = 0;               // elements that are neighbours on both sides
  std::vector<Loop> loops = {};  // outermost first
  int64_t numel() const {
    int64_t n = run;
    for (const Loop& loop : loops) n *= loop.count;
    return n;
  }
  /// One behind the last element of the part that is read.
  int64_t from_end() const {
    int64_t last = from + run;
    for (const Loop& loop : loops) last += (loop.count - 1) * loop.from_stride;
    return last;
  }
  bool operator==(const Copy&) const = default;
};

/// Calls body(from, to, run) for each run of neighbours.
template <class Body>
void for_each_run(const Copy& copy, const Body& body, size_t depth = 0, int64_t from = 0,
                  int64_t to = 0) {
  if (depth == copy.loops.size()) return body(copy.from + from, copy.to + to, copy.run);
  const Copy::Loop& loop = copy.loops[depth];
  for (int64_t i = 0; i < loop.count; ++i)
    for_each_run(copy, body, depth + 1, from + i * loop.from_stride, to + i * loop.to_stride);
}

/// The copies are disjoint and together the wanted slice, where the parts are disjoint and together
/// the tensor. The shapes are equal, or one is flat: [n] for n elements.
TRIREME_API std::vector<Copy> plan_load(const IndexTensor& saved, const Slice& wanted);

/// The slice in a tensor of another shape: one of the two is flat, and both have as many elements.
TRIREME_API Slice reshaped(const Slice& flat, const std::vector<int64_t>& shape);

}  // namespace trireme
