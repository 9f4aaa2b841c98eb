// SPDX-License-Identifier: Apache-2.0
// Keys of the job's store, all under "facts/":
//   met/<i>, all_met/<i>   how many nodes have come to the i-th meeting; all of them
//   node/<k>               what node k says of itself: an encoded RankFacts
//   verdict                node 0's: a refusal, or kAlike
#include "trireme/launch/nodes/compare_nodes.h"

#include <algorithm>
#include <chrono>

#include "trireme/base/check.h"
#include "trireme/base/log.h"
#include "trireme/launch/nodes/patience.h"
#include "trireme/launch/process/process.h"
#include "trireme/rendezvous/facts/read_facts.h"

namespace trireme::launch {
namespace {

constexpr int kMeetings = 2;
constexpr const char* kAlike = "alike";

double wall_seconds() { return static_cast<double>(wall_ns()) * 1e-9; }

/// In slices, so that a signal is heard. Timeout also when asked to stop.
std::string get(Store& store, const std::string& key, Deadline deadline,
                const std::function<bool()>& asked_to_stop) {
  while (true) {
    try {
      return store.get(key, Deadline::after(std::min(patience::kSlice, deadline.remaining())));
    } catch (const Timeout&) {
      if (deadline.expired() || asked_to_stop()) throw;
    }
  }
}

void meet(Store& store, RankFacts* mine, int nodes, Deadline deadline,
          const std::function<bool()>& asked_to_stop) {
  for (int i = 0; i < kMeetings; ++i) {
    const std::string all = fmt::format("facts/all_met/{}", i);
    mine->came.push_back(wall_seconds());
    if (store.add(fmt::format("facts/met/{}", i), 1) == nodes) store.set(all, "ok");
    get(store, all, deadline, asked_to_stop);
    mine->left.push_back(wall_seconds());
  }
}

}  // namespace

std::vector<Fact> node_facts(const Machine& machine, const std::vector<std::string>& command) {
  std::vector<Fact> facts = read_facts("");
  if (!machine.blas_corename.empty()) {
    const std::string better = choose_coretype(machine.model, machine.blas_corename);
    facts.push_back({"OpenBLAS kernels", better.empty() ? machine.blas_corename : better});
  }
  for (size_t i = 0; i < command.size(); ++i)
    if (i == 0 || command[i].ends_with(".py"))
      facts.push_back(file_fact(command[i], i == 0 ? find_program(command[i]) : command[i]));
  return facts;
}

void say_differences(const FactTable& table) {
  if (table.lines.empty()) return;
  log_warn("not all is alike where this job runs:");
  for (const std::string& line : table.lines) log_warn("  {}", line);
}

void compare_nodes(Store& store, RankFacts mine, int node, int nodes, Deadline deadline,
                   const std::function<bool()>& asked_to_stop) {
  std::string verdict;
  try {
    meet(store, &mine, nodes, deadline, asked_to_stop);
    const auto key = [](int k) { return fmt::format("facts/node/{}", k); };
    store.set(key(node), encode(mine));
    if (node == 0) {
      std::vector<RankFacts> all;
      for (int k = 0; k < nodes; ++k)
        all.push_back(decode<RankFacts>(get(store, key(k), deadline, asked_to_stop)));
      const FactTable table = compare_facts(all);
      say_differences(table);
      store.set("facts/verdict", table.refusal.empty() ? kAlike : table.refusal);
    }
    verdict = get(store, "facts/verdict", deadline, asked_to_stop);
  } catch (const Timeout& error) {
    log_debug("the nodes were not compared: {}", error.what());
    return;
  }
  check<UsageError>(verdict == kAlike, "{}", verdict);
}

}  // namespace trireme::launch
