// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "trireme/base/clock.h"
#include "trireme/comm/mpi/abi.h"

namespace trireme::detail {

/// A communicator of a module, its tags, and what its error codes mean.
class MpiCommunicator {
 public:
  /// Adopts MPI_COMM_WORLD or the caller's communicator. Throws UsageError if it cannot be used.
  static std::unique_ptr<MpiCommunicator> adopt(const TriremeMpiModule& api,
                                                const void* comm = nullptr, size_t bytes = 0);
  ~MpiCommunicator() { api.release(comm_.handle, broken_); }
  MpiCommunicator(const MpiCommunicator&) = delete;

  /// Collective. Throws Timeout if not all ranks arrive.
  std::unique_ptr<MpiCommunicator> duplicate(Duration timeout) const;
  /// Collective over `ranks` of this one, all of which are known to be about to call it.
  std::unique_ptr<MpiCommunicator> create(const std::vector<int>& ranks) const;

  /// Waits for a request of this communicator. Returns false if it is incomplete at the deadline;
  /// MPI may then still read and write its memory. Throws ResourceError.
  bool finish(TriremeMpiRequest& request, Deadline deadline) const;

  /// Records that calls on it stay incomplete, here or on other ranks.
  void set_broken() { broken_ = true; }

  void* handle() const { return comm_.handle; }
  int rank() const { return comm_.rank; }
  int size() const { return comm_.size; }

  // The highest tags are reserved.
  enum Reserved { kParts = 1, kReports, kCreate, kOwnTags = 16 };
  int max_tag() const { return comm_.max_tag - 2 * kOwnTags; }
  int tag(Reserved what) const { return comm_.max_tag - what; }
  /// Maps a caller's tag: 0 … max_tag(), or one of Group's own, -1 … -kOwnTags.
  int tag(int given) const { return given >= 0 ? given : comm_.max_tag - kOwnTags + 1 + given; }

  struct Problem {
    TriremeMpiError kind;
    std::string text;
  };
  Problem problem(int code) const;

  const TriremeMpiModule& api;

 private:
  MpiCommunicator(const TriremeMpiModule& api, TriremeMpiComm comm) : api(api), comm_(comm) {}
  TriremeMpiComm comm_;
  bool broken_ = false;
};

}  // namespace trireme::detail
