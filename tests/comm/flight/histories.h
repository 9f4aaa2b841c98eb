// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "trireme/base/philox.h"
#include "trireme/comm/flight/history.h"

// Histories of jobs that never ran.
namespace trireme::testing {

class Dice {
 public:
  explicit Dice(uint64_t seed) : seed_(seed) {}
  uint64_t up_to(uint64_t n) { return philox_block(seed_, 0, ++at_)[0] % (n + 1); }

 private:
  uint64_t seed_, at_ = 0;
};

inline flight::Entry random_call(Dice& dice, uint64_t seq, double when, int ranks) {
  static const Collective ops[] = {Collective::all_reduce,     Collective::broadcast,
                                   Collective::reduce,         Collective::all_gather,
                                   Collective::reduce_scatter, Collective::barrier};
  flight::Entry e;
  e.seq = seq;
  e.op = ops[dice.up_to(5)];
  if (e.op != Collective::barrier) {
    e.dtype = static_cast<flight::DType>(dice.up_to(6));
    e.count = 1 + dice.up_to(1000);
  }
  if (e.op == Collective::broadcast || e.op == Collective::reduce)
    e.root = static_cast<int>(dice.up_to(static_cast<uint64_t>(ranks - 1)));
  e.state = flight::CallState::done;
  e.site = "train.cc:" + std::to_string(20 + dice.up_to(40));
  e.posted = when;
  e.done = when + 1e-5;
  return e;
}

/// All ranks made the same calls; each came a little earlier or later. Written 10 s after the last.
inline std::vector<flight::History> agreeing(Dice& dice, int ranks, uint64_t calls,
                                             uint64_t first = 1,
                                             const std::string& group = "world") {
  std::vector<flight::History> all(static_cast<size_t>(ranks));
  for (int r = 0; r < ranks; ++r) {
    auto& h = all[size_t(r)];
    h.group = group;
    h.rank = h.world_rank = h.writer = r;
    h.size = ranks;
    h.written = 1000 + double(calls) + 10;
  }
  for (uint64_t i = 0; i < calls; ++i) {
    const auto e = random_call(dice, first + i, 1000 + double(i), ranks);
    for (auto& h : all) {
      h.calls.push_back(e);
      h.calls.back().posted += double(dice.up_to(999)) * 1e-6;
    }
  }
  return all;
}

}  // namespace trireme::testing
