// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "cli/bench_ops.h"
#include "cli/worker/bench_table.h"
#include "cli/worker/peers/peer.h"

namespace trireme::bench {

/// What was asked for; the front half has checked the words.
struct Job {
  std::vector<Op> ops;
  std::vector<Red> reds;
  std::vector<const Type*> types;
  std::vector<int64_t> bytes;
  std::string step;   // for the first line
  int root = 0;       // -1: each rank in turn
  int64_t calls = 0;  // timed calls of a round; 0: as many as fill it
  int warmup = 5, rounds = 7;
  bool check = true, arena = true, threads = false;
};

struct NamedPeer {
  std::string name;
  std::unique_ptr<BenchPeer> peer;
};

struct Result {
  std::vector<Row> rows;  // the same on every rank
  int64_t wrong = 0;      // elements
  double foreign = 0;     // what others took of the machine
};

/// Times everything that `job` names, the backends alternating round by round, by one clock.
/// Collective over `world`, our own group of the same ranks; hosts[r] says where rank r runs.
/// UsageError where no backend can do any of it.
Result run(const Job& job, Group& world, const std::vector<int>& hosts,
           std::vector<NamedPeer>& backends, Output& output);

}  // namespace trireme::bench
