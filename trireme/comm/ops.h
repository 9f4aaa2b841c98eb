// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

// The calls that ranks make and the reductions they ask for: one set of words for groups, backends,
// the local engine, the flight recorder and its dumps. Their numbers are in dumps and on the wire:
// new ones go to the end, none changes. No LibTorch here.
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

/// What is true of a call whoever carries it out.
struct CollectiveFacts {
  Collective op;
  const char* name;
  bool reduces = false;
  bool has_root = false;
  bool is_message = false;     // between two ranks; the others know nothing of it
  bool counts_output = false;  // a call's count is its output's elements; else its input's
  bool is_uneven = false;      // its counts may differ from rank to rank
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
    "the facts stand in the order of the numbers");

/// Of a number that no row has: a dump may come from a newer Trireme.
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
