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
  /// MPI_COMM_WORLD, or the caller's. UsageError: that is none that we can use.
  static std::unique_ptr<MpiCommunicator> adopt(const TriremeMpiModule& api,
                                                const void* comm = nullptr, size_t bytes = 0);
  ~MpiCommunicator() { api.release(comm_.handle, broken_); }
  MpiCommunicator(const MpiCommunicator&) = delete;

  /// Collective. Timeout where not all ranks come.
  std::unique_ptr<MpiCommunicator> duplicate(Duration timeout) const;
  /// Collective over `ranks` of this one, all of which are known to be about to call it.
  std::unique_ptr<MpiCommunicator> create(const std::vector<int>& ranks) const;

  /// Waits for a request of this communicator. False: it is not complete at the deadline, and MPI
  /// may go on reading and writing its memory. ResourceError.
  bool finish(TriremeMpiRequest& request, Deadline deadline) const;

  /// Calls on it stay incomplete, here or on other ranks.
  void set_broken() { broken_ = true; }

  void* handle() const { return comm_.handle; }
  int rank() const { return comm_.rank; }
  int size() const { return comm_.size; }

  // The highest tags are ours.
  enum Reserved { kParts = 1, kReports, kCreate, kOwnTags = 16 };
  int max_tag() const { return comm_.max_tag - 2 * kOwnTags; }
  int tag(Reserved what) const { return comm_.max_tag - what; }
  /// A caller's tag: 0 … max_tag(), or one of Group's own, -1 … -kOwnTags.
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
