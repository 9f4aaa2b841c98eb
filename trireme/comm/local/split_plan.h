// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "trireme/comm/local/control.h"
#include "trireme/comm/local/types.h"

// Which rank works on which part of a buffer. Pure functions of integers.
namespace trireme::local {

struct Range {
  size_t begin = 0, end = 0;
  size_t size() const { return end - begin; }
  bool operator==(const Range&) const = default;
};

/// Rank r's chunk of `count` elements of `item` bytes: chunks are consecutive, cover all elements,
/// differ by at most one cache line, and begin on cache lines of the buffer (64 bytes), so that no
/// line is written by two ranks.
constexpr Range chunk_of(size_t count, size_t item, int size, int rank) {
  const size_t per_line = 64 / item;
  const size_t lines = (count + per_line - 1) / per_line;
  const auto n = static_cast<size_t>(size), r = static_cast<size_t>(rank);
  auto edge = [&](size_t i) {
    return std::min(count, (lines / n * i + std::min(i, lines % n)) * per_line);
  };
  return {edge(r), edge(r + 1)};
}

/// Whether `count` is one rank's part of a buffer that has a part for each.
constexpr bool has_parts(Collective op) {
  return op == Collective::reduce_scatter || op == Collective::scatter;
}

/// The number of elements that a rank would put into its slot: decides between slot and direct
/// path.
constexpr size_t unit_count(Collective op, size_t count, int size) {
  return has_parts(op) ? count * static_cast<size_t>(size) : count;
}

/// The buffer that a rank shows its peers for the direct path.
struct Shown {
  bool output;   // else the input
  size_t count;  // elements
};
constexpr Shown shown(Collective op, size_t count, int size, bool is_root) {
  if (op == Collective::gather && is_root) return {true, count * static_cast<size_t>(size)};
  if (op == Collective::scatter && !is_root) return {true, count};
  return {false, unit_count(op, count, size)};
}

/// The number of elements of `count` that one segment of the staged path carries. reduce_scatter
/// and scatter stage one part for each rank at once.
constexpr size_t segment_elements(Collective op, size_t item, int size) {
  const size_t room = segment_bytes(size) / item;
  return has_parts(op) ? std::max<size_t>(1, room / static_cast<size_t>(size)) : room;
}

constexpr uint64_t segment_count(Collective op, size_t count, size_t item, int size) {
  const size_t each = segment_elements(op, item, size);
  return (count + each - 1) / each;
}

constexpr Range segment_range(Collective op, size_t count, size_t item, int size, uint64_t k) {
  const size_t each = segment_elements(op, item, size);
  return {std::min(count, k * each), std::min(count, (k + 1) * each)};
}

}  // namespace trireme::local
