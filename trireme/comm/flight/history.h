// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trireme/comm/flight/ring.h"

// The contents of a dump as values.
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
  double posted = 0, done = 0;  // seconds since 1970, by its host's clock; done 0: incomplete
};

/// The last calls of one rank in one group.
struct History {
  std::string group = "world", backend, host;
  uint64_t generation = 0;
  int rank = 0, size = 1, world_rank = 0, pid = 0;
  int writer = 0;            // the rank that wrote it; another one if this rank could not
  int signal = 0;            // the signal that made it write; 0: none
  double written = 0;        // seconds since 1970
  std::string why;           // what the rank threw; "" if it had not failed
  std::vector<Entry> calls;  // collectives, by number
  std::vector<Entry> pairs;  // sends and recvs, by number
};

}  // namespace trireme::flight
