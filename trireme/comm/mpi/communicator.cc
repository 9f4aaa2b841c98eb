// SPDX-License-Identifier: Apache-2.0
#include "trireme/comm/mpi/communicator.h"

#include <sched.h>

#include "trireme/base/check.h"

namespace trireme::detail {

std::unique_ptr<MpiCommunicator> MpiCommunicator::adopt(const TriremeMpiModule& api,
                                                        const void* comm, size_t bytes) {
  TriremeMpiComm made{};
  char why[512] = "";
  check<UsageError>(api.adopt(comm, bytes, &made, why, sizeof why), "mpi_group: {}", why);
  return std::unique_ptr<MpiCommunicator>(new MpiCommunicator(api, made));
}

std::unique_ptr<MpiCommunicator> MpiCommunicator::duplicate(Duration timeout) const {
  const auto well = [&](int code) {
    check<ResourceError>(code == 0, "rank {}: MPI cannot make a communicator: {}", rank(),
                         code ? problem(code).text : "");
  };
  // MPI_Comm_dup waits for all ranks without a deadline, so first check that all have arrived.
  TriremeMpiRequest request;
  well(api.barrier(handle(), &request));
  check<Timeout>(
      finish(request, Deadline::after(timeout)),
      "rank {}: not all {} ranks of the communicator joined a group of it within {:.3g} s", rank(),
      size(), std::chrono::duration<double>(timeout).count());
  TriremeMpiComm made{};
  well(api.duplicate(handle(), &made));
  return std::unique_ptr<MpiCommunicator>(new MpiCommunicator(api, made));
}

bool MpiCommunicator::finish(TriremeMpiRequest& request, Deadline deadline) const {
  for (bool done = false; !done;) {
    const int code = api.test(&request, &done, nullptr);
    check<ResourceError>(code == 0, "rank {}: an MPI call failed: {}", rank(),
                         code ? problem(code).text : "");
    if (done) break;
    if (deadline.expired()) {
      api.abandon(&request, 1);
      return false;
    }
    ::sched_yield();
  }
  return true;
}

std::unique_ptr<MpiCommunicator> MpiCommunicator::create(const std::vector<int>& ranks) const {
  const std::vector<int32_t> list(ranks.begin(), ranks.end());
  TriremeMpiComm made{};
  const int code =
      api.create(handle(), list.data(), static_cast<int32_t>(list.size()), tag(kCreate), &made);
  check<ResourceError>(code == 0, "rank {}: MPI cannot make a communicator of {} ranks: {}", rank(),
                       ranks.size(), code ? problem(code).text : "");
  return std::unique_ptr<MpiCommunicator>(new MpiCommunicator(api, made));
}

MpiCommunicator::Problem MpiCommunicator::problem(int code) const {
  char text[512] = "";
  const TriremeMpiError kind = api.describe(code, text, sizeof text);
  return {kind, text};
}

}  // namespace trireme::detail
