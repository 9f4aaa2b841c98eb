// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "trireme/comm/mpi/communicator.h"

namespace trireme::detail {

/// What a rank that waited in vain, or that gives up, reports to the others, since MPI does not say
/// where ranks are. A message of this fixed size, sent at once whether or not it is read.
struct MpiReport {
  enum Kind : uint8_t { waiting, failed, mismatch, timeout };
  uint32_t magic = 0x504d5254;  // "TRMP"
  uint16_t version = 2;
  Kind kind = waiting;
  uint8_t op = 0;         // waiting: Collective
  uint64_t sequence = 0;  // waiting: the number of the collective; 0: a message
  char text[2000] = "";

  void say(const std::string& words) { words.copy(text, sizeof text - 1); }
};

class MpiReports {
 public:
  explicit MpiReports(const MpiCommunicator& comm) : comm_(comm) {}
  ~MpiReports();
  MpiReports(const MpiReports&) = delete;

  /// Sends to all other ranks.
  void send(const MpiReport& report);
  /// Returns a report that has arrived, with its sender.
  std::optional<std::pair<int, MpiReport>> next();

 private:
  struct Sent {
    MpiReport report;
    std::vector<TriremeMpiRequest> requests;
  };
  const MpiCommunicator& comm_;
  std::deque<std::unique_ptr<Sent>> sent_;
};

}  // namespace trireme::detail
