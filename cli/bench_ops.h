// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/base/check.h"

// What `trireme bench` can time, in nccl-tests' words: operations, sizes, factors. Pure; shared by
// the front half, which checks flags, and the worker.
namespace trireme::bench {

enum class Op : uint8_t {
  all_reduce,
  all_gather,
  reduce_scatter,
  broadcast,
  reduce,
  gather,
  scatter,
  all_to_all,
  sendrecv,  // a ring: each rank sends to the next and receives from the one before
  pingpong,  // rank 0 to rank 1 and back; the time is of one way
  barrier
};
inline constexpr std::array<const char*, 11> kOpNames = {
    "all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce", "gather",
    "scatter",    "all_to_all", "sendrecv",       "pingpong",  "barrier"};
inline const char* name_of(Op op) { return kOpNames[static_cast<size_t>(op)]; }

enum class Red : uint8_t { sum, prod, min, max, avg };
inline constexpr std::array<const char*, 5> kRedNames = {"sum", "prod", "min", "max", "avg"};
inline const char* name_of(Red red) { return kRedNames[static_cast<size_t>(red)]; }

struct Type {
  const char* name;
  int bytes;
  bool floating;
  double step;  // the distance from 1 to the next number; 0 for integers
};
inline constexpr std::array<Type, 8> kTypes = {{{"float", 4, true, 1.1920929e-07},
                                                {"double", 8, true, 2.220446049250313e-16},
                                                {"half", 2, true, 0.0009765625},
                                                {"bfloat16", 2, true, 0.0078125},
                                                {"int8", 1, false, 0},
                                                {"uint8", 1, false, 0},
                                                {"int32", 4, false, 0},
                                                {"int64", 8, false, 0}}};
inline std::vector<std::string> type_names() {
  std::vector<std::string> names;
  for (const Type& type : kTypes) names.push_back(type.name);
  return names;
}
inline const Type& type_named(std::string_view name) {
  for (const Type& type : kTypes)
    if (name == type.name) return type;
  fail<UsageError>("bench: there is no type '{}'", name);
}

inline constexpr std::array<const char*, 4> kBackends = {"local", "gloo", "mpi", "hybrid"};

template <class Names>
std::vector<std::string> as_strings(const Names& names) {
  return {names.begin(), names.end()};
}

/// "a,b" → {"a", "b"}; "all" → every one of `names`. UsageError names what is not among them.
inline std::vector<std::string> choose(const std::string& list,
                                       const std::vector<std::string>& names,
                                       std::string_view what) {
  if (list == "all") return names;
  std::vector<std::string> chosen;
  for (size_t begin = 0; begin <= list.size();) {
    const size_t end = std::min(list.find(',', begin), list.size());
    const std::string name = list.substr(begin, end - begin);
    check<UsageError>(std::find(names.begin(), names.end(), name) != names.end(),
                      "bench: {} '{}' is none of {} and all", what, name, fmt::join(names, ", "));
    if (std::find(chosen.begin(), chosen.end(), name) == chosen.end()) chosen.push_back(name);
    begin = end + 1;
  }
  return chosen;
}

inline Op op_named(std::string_view name) {
  const auto at = std::find(kOpNames.begin(), kOpNames.end(), name);
  check<UsageError>(at != kOpNames.end(), "bench: there is no operation '{}'", name);
  return static_cast<Op>(at - kOpNames.begin());
}
inline Red red_named(std::string_view name) {
  const auto at = std::find(kRedNames.begin(), kRedNames.end(), name);
  check<UsageError>(at != kRedNames.end(), "bench: there is no reduction '{}'", name);
  return static_cast<Red>(at - kRedNames.begin());
}

inline bool reduces(Op op) {
  return op == Op::all_reduce || op == Op::reduce_scatter || op == Op::reduce;
}
inline bool has_root(Op op) {
  return op == Op::broadcast || op == Op::reduce || op == Op::gather || op == Op::scatter;
}
/// One buffer that is sent and received in.
inline bool in_place(Op op) {
  return op == Op::all_reduce || op == Op::broadcast || op == Op::reduce;
}

/// "64K", "16M", "1G", "4": bytes, as nccl-tests reads them; -1: no size.
inline int64_t bytes_of(const std::string& text) {
  size_t used = 0;
  double value = -1;
  try {
    value = std::stod(text, &used);
  } catch (const std::exception&) {
    return -1;
  }
  const std::string unit = text.substr(used);
  const int shift = unit.empty() || unit == "B"  ? 0
                    : unit == "K" || unit == "k" ? 10
                    : unit == "M" || unit == "m" ? 20
                    : unit == "G" || unit == "g" ? 30
                                                 : -1;
  if (shift < 0 || !(value >= 0) || value > 1e15) return -1;
  return static_cast<int64_t>(value * static_cast<double>(int64_t{1} << shift));
}

/// From begin to end: by a factor of at least 2, else by a step of at least 1 byte.
inline std::vector<int64_t> sizes(int64_t begin, int64_t end, int64_t factor, int64_t step) {
  std::vector<int64_t> list;
  for (int64_t s = begin; s <= end; s = factor > 1 ? s * factor : s + step) {
    list.push_back(s);
    if (factor <= 1 && step <= 0) break;
  }
  return list;
}

/// What one call moves. `bytes`, the size of the table, is the larger of what a rank sends and what
/// it receives; every rank has at least one element in each part.
struct Shape {
  int64_t in = 0;     // elements of a rank's input (on the root, where the op has one)
  int64_t out = 0;    // elements of a rank's output
  int64_t count = 0;  // the table's column
  int64_t bytes = 0;
};
inline Shape shape_of(Op op, int64_t bytes, int element, int ranks) {
  if (op == Op::barrier) return {};
  const int64_t whole = std::max<int64_t>(1, bytes / element),
                part = std::max<int64_t>(1, bytes / element / ranks);
  switch (op) {
    case Op::all_gather:
    case Op::gather:
      return {part, part * ranks, part, part * ranks * element};
    case Op::reduce_scatter:
    case Op::scatter:
      return {part * ranks, part, part, part * ranks * element};
    case Op::all_to_all:
      return {part * ranks, part * ranks, part, part * ranks * element};
    default:
      return {whole, whole, whole, whole * element};
  }
}

/// From the rate of the algorithm to that of the bus, as nccl-tests has it.
inline double bus_factor(Op op, int ranks) {
  const double n = ranks;
  switch (op) {
    case Op::all_reduce:
      return 2 * (n - 1) / n;
    case Op::all_gather:
    case Op::reduce_scatter:
    case Op::gather:
    case Op::scatter:
    case Op::all_to_all:
      return (n - 1) / n;
    default:
      return 1;
  }
}

}  // namespace trireme::bench
