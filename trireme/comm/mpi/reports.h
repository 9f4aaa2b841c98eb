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

/// What a rank that waited in vain, or that gives up, tells the others: MPI says of nobody where
/// they are. One message of this size; it goes at once, whether or not anybody listens.
struct MpiReport {
  enum Kind : uint8_t { waiting, failed, mismatch, timeout };
  uint32_t magic = 0x504d5254;  // "TRMP"
  uint16_t version = 2;
  Kind kind = waiting;
  uint8_t op = 0;         // waiting: Collective
  uint64_t sequence = 0;  // waiting: the number of the collective; 0: a pair's
  char text[2000] = "";

  void say(const std::string& words) { words.copy(text, sizeof text - 1); }
};

class MpiReports {
 public:
  explicit MpiReports(const MpiCommunicator& comm) : comm_(comm) {}
  ~MpiReports();
  MpiReports(const MpiReports&) = delete;

  /// To all other ranks.
  void send(const MpiReport& report);
  /// One that has come, with its sender.
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
