// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>

#include "cli/bench_ops.h"

// What -c puts into buffers and expects to find. Small whole numbers that every type holds exactly,
// that differ by rank and by place: an element in the wrong place is a wrong element. Pure.
namespace trireme::bench {

/// Element i of what rank r of n gives.
inline int value_at(Op op, Red red, int r, int64_t i, int n) {
  if (reduces(op) && red == Red::prod)  // the product is 2, or 1 at every (n+1)th place
    return (i + r) % (n + 1) == 0 ? 2 : 1;
  if (reduces(op)) return static_cast<int>((i + r) % 3);
  return static_cast<int>((i * 7 + r * 13) % 101);
}
/// What outputs hold before: a value that no result has.
inline constexpr int kPoison = 103;

/// Element i of rank r's output (of rank 1's, then of rank 0's buffer for pingpong).
inline double expected_at(Op op, Red red, int r, int64_t i, int n, int root, int64_t part) {
  auto reduced = [&](int64_t at) {
    double result = value_at(op, red, 0, at, n);
    for (int q = 1; q < n; ++q) {
      const double v = value_at(op, red, q, at, n);
      result = red == Red::prod  ? result * v
               : red == Red::min ? std::min(result, v)
               : red == Red::max ? std::max(result, v)
                                 : result + v;
    }
    return red == Red::avg ? result / n : result;
  };
  switch (op) {
    case Op::all_reduce:
    case Op::reduce:
      return reduced(i);
    case Op::reduce_scatter:
      return reduced(r * part + i);
    case Op::broadcast:
      return value_at(op, red, root, i, n);
    case Op::all_gather:
    case Op::gather:
      return value_at(op, red, static_cast<int>(i / part), i % part, n);
    case Op::scatter:
      return value_at(op, red, root, r * part + i, n);
    case Op::all_to_all:
      return value_at(op, red, static_cast<int>(i / part), r * part + i % part, n);
    case Op::sendrecv:
      return value_at(op, red, (r + n - 1) % n, i, n);
    case Op::pingpong:
      return value_at(op, red, 0, i, n);
    case Op::barrier:
      break;
  }
  return 0;
}

/// Does rank r have a result to look at?
inline bool has_result(Op op, int r, int root) {
  if (op == Op::barrier) return false;
  if (op == Op::reduce || op == Op::gather) return r == root;
  if (op == Op::pingpong) return r < 2;
  return true;
}

/// Sums of ranks are exact; a mean may be rounded once or twice.
inline bool is_right(double got, double expected, Red red, const Type& type) {
  if (got == expected) return true;
  const double slack = red == Red::avg ? 2 * type.step * expected : 0;
  return got >= expected - slack && got <= expected + slack;
}

}  // namespace trireme::bench
