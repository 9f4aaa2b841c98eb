// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <stdexcept>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "trireme/base/encoding.h"
#include "trireme/base/error.h"
#include "trireme/rpc/autograd/calls.h"
#include "trireme/rpc/autograd/ids.h"
#include "trireme/rpc/autograd/plan/backward_plan.h"

// What workers say to each other of a backward, and the plan that is made of it.
namespace trireme::fuzz {

template <class... T>
void arguments_are_read(std::string_view bytes) {
  std::tuple<T...> values;
  encoding::Reader reader(bytes);
  try {
    reader.get(values);
    if (!reader.done()) return;
  } catch (const Corrupt&) {
    return;
  }
  encoding::Writer writer;
  writer.put(values);
  if (writer.take() != bytes)
    throw std::logic_error("arguments are written otherwise than they are read");
}

inline void rpc_backward_calls(std::string_view bytes) {
  using namespace rpc::autograd;
  arguments_are_read<ContextId, uint64_t, bool, std::vector<Pair>>(bytes);
  arguments_are_read<std::vector<Found>>(bytes);
  arguments_are_read<ContextId, uint64_t, BackwardKind, std::vector<PassOrder>>(bytes);
  arguments_are_read<ContextId, uint64_t, std::string>(bytes);
  arguments_are_read<ContextId>(bytes);
}

/// What workers have found, two bytes and more for each entry: its worker and how many exits and
/// touches follow, its message, these. The first byte: whether a worker has one pass.
inline void rpc_backward_plan(std::string_view bytes) {
  using namespace rpc::backward_plan;
  if (bytes.empty()) return;
  const bool one_pass = bytes[0] & 1;
  bytes.remove_prefix(1);
  const auto next = [&] {
    const int number = bytes.empty() ? 0 : static_cast<uint8_t>(bytes[0]);
    bytes.remove_prefix(std::min<size_t>(1, bytes.size()));
    return number;
  };
  std::vector<Entry> entries;
  while (!bytes.empty() && entries.size() < 256) {
    const int head = next();
    Entry entry;
    entry.worker = head & 3;
    entry.message = entries.empty() ? kLosses : next();
    for (int n = head >> 2 & 7; n > 0; --n) entry.exits.push_back(next());
    for (int n = head >> 5 & 7; n > 0; --n) entry.touches.push_back(next() - 1);
    entries.push_back(std::move(entry));
  }
  std::vector<Pass> passes;
  try {
    passes = make_passes(entries, one_pass);
  } catch (const Corrupt&) {
    return;
  }
  std::map<int, int> worker_of;  // of entries that no pass has had yet
  for (const Entry& entry : entries) worker_of[entry.message] = entry.worker;
  std::map<int, int> passes_of;
  for (const Pass& pass : passes) {
    ++passes_of[pass.worker];
    for (const int message : pass.entries) {
      const auto found = worker_of.find(message);
      if (found == worker_of.end() || found->second != pass.worker)
        throw std::logic_error("a pass has an entry of another, or twice");
      worker_of.erase(found);
    }
    if (pass.waits && pass.after.size() != pass.entries.size())
      throw std::logic_error("a pass that waits does not say after what");
  }
  if (!worker_of.empty()) throw std::logic_error("an entry is in no pass");
  for (const auto& [worker, count] : passes_of)
    if (one_pass && count != 1) throw std::logic_error("a worker has two passes");
}

}  // namespace trireme::fuzz
