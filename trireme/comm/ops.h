// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

// The calls that ranks make and the reductions they ask for: one vocabulary for groups, backends,
// the local engine, the flight recorder and its dumps. The numbers are part of dumps and of the
// wire format: append new ones at the end and never change one. This header does not need LibTorch.
namespace trireme {

enum class ReduceOp : uint8_t { sum, avg, min, max, product, band, bor, bxor };

enum class Collective : uint8_t {
  none,
  barrier,
  all_reduce,
  broadcast,
  reduce,
  all_gather,
  reduce_scatter,
  send,
  recv,
  gather,
  scatter,
  all_to_all,
  permute
};

/// Properties of a call that do not depend on the backend.
struct CollectiveFacts {
  Collective op;
  const char* name;
  bool reduces = false;
  bool has_root = false;
  bool is_message = false;     // between two ranks only
  bool counts_output = false;  // the count is that of the output's elements; else the input's
  bool is_uneven = false;      // counts may differ between ranks
};

constexpr std::array kCollectives{
    CollectiveFacts{.op = Collective::none, .name = "nothing"},
    CollectiveFacts{.op = Collective::barrier, .name = "barrier"},
    CollectiveFacts{.op = Collective::all_reduce, .name = "all_reduce", .reduces = true},
    CollectiveFacts{.op = Collective::broadcast, .name = "broadcast", .has_root = true},
    CollectiveFacts{.op = Collective::reduce, .name = "reduce", .reduces = true, .has_root = true},
    CollectiveFacts{.op = Collective::all_gather, .name = "all_gather"},
    CollectiveFacts{.op = Collective::reduce_scatter,
                    .name = "reduce_scatter",
                    .reduces = true,
                    .counts_output = true},
    CollectiveFacts{.op = Collective::send, .name = "send", .is_message = true},
    CollectiveFacts{.op = Collective::recv, .name = "recv", .is_message = true},
    CollectiveFacts{.op = Collective::gather, .name = "gather", .has_root = true},
    CollectiveFacts{
        .op = Collective::scatter, .name = "scatter", .has_root = true, .counts_output = true},
    CollectiveFacts{.op = Collective::all_to_all, .name = "all_to_all", .is_uneven = true},
    CollectiveFacts{.op = Collective::permute, .name = "permute", .is_uneven = true},
};
static_assert(
    [] {
      for (size_t i = 0; i < kCollectives.size(); ++i)
        if (static_cast<size_t>(kCollectives[i].op) != i) return false;
      return true;
    }(),
    "kCollectives must be in the order of the enum's numbers");

/// Stands for an unknown number: a dump may come from a newer Trireme.
constexpr CollectiveFacts kUnknownCollective{.op = Collective::none, .name = "?"};

constexpr const CollectiveFacts& facts_of(Collective op) {
  const auto i = static_cast<size_t>(op);
  return i < kCollectives.size() ? kCollectives[i] : kUnknownCollective;
}

constexpr const char* name_of(Collective op) { return facts_of(op).name; }

constexpr const char* name_of(ReduceOp op) {
  constexpr std::array names{"sum", "avg", "min", "max", "product", "band", "bor", "bxor"};
  const auto i = static_cast<size_t>(op);
  return i < names.size() ? names[i] : "?";
}

constexpr bool is_bitwise(ReduceOp op) {
  return op == ReduceOp::band || op == ReduceOp::bor || op == ReduceOp::bxor;
}

}  // namespace trireme
