// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trireme/comm/flight/ring.h"

// What a dump says, as values.
namespace trireme::flight {

struct Entry {
  uint64_t seq = 0;
  Collective op = Collective::none;
  DType dtype = DType::u8;
  ReduceOp red = ReduceOp::sum;
  int root = 0;  // or the peer
  int tag = 0;
  uint64_t count = 0;
  CallState state = CallState::none;
  std::string site;
  double posted = 0, done = 0;  // seconds since 1970, by the clock of its host; done 0: it is not
};

/// The last calls of one rank in one group.
struct History {
  std::string group = "world", backend, host;
  uint64_t generation = 0;
  int rank = 0, size = 1, world_rank = 0, pid = 0;
  int writer = 0;            // the rank that wrote it down; another one where this rank could not
  int signal = 0;            // that made it write; 0: none
  double written = 0;        // seconds since 1970
  std::string why;           // what the rank threw; "" where it had not failed
  std::vector<Entry> calls;  // collectives, by number
  std::vector<Entry> pairs;  // sends and recvs, by number
};

}  // namespace trireme::flight
