// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

// Where the elements of a box lie in the whole tensor. Pure.
namespace trireme::detail {

/// Calls run(begin, local, count) for each run of elements that are neighbours in the whole tensor,
/// row-major, and in the box: elements [begin, begin + count) of the whole are elements
/// [local, local + count) of the box. In the order of both.
template <class Run>
void each_run(const std::vector<int64_t>& shape, const std::vector<int64_t>& offsets,
              const std::vector<int64_t>& lengths, Run run) {
  for (const int64_t length : lengths)
    if (length == 0) return;
  // Dims from `inner` on are one run: all of them are whole, but for the first.
  size_t inner = shape.size();
  int64_t count = 1, row = 1;  // elements of a run; of the whole tensor's dims from `inner` on
  while (inner > 0) {
    --inner;
    count *= lengths[inner];
    row *= shape[inner];
    if (lengths[inner] != shape[inner]) break;
  }
  int64_t first = 0;  // of the box, in the whole tensor
  for (size_t d = 0, n = shape.size(); d < n; ++d) first = first * shape[d] + offsets[d];
  std::vector<int64_t> at(inner, 0);
  for (int64_t local = 0;; local += count) {
    int64_t begin = 0;
    for (size_t d = 0; d < inner; ++d) begin = begin * shape[d] + at[d];
    run(first + begin * row, local, count);
    size_t d = inner;
    while (d > 0 && ++at[d - 1] == lengths[d - 1]) at[--d] = 0;
    if (d == 0) return;
  }
}

}  // namespace trireme::detail
