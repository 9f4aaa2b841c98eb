// SPDX-License-Identifier: Apache-2.0
#include "trireme/comm/mpi/reports.h"

#include <sched.h>

#include "trireme/comm/local/types.h"

namespace trireme::detail {
namespace {
constexpr auto kByteType = static_cast<uint8_t>(local::DType::u8);
}

void MpiReports::send(const MpiReport& report) {
  auto sent = std::make_unique<Sent>();
  sent->report = report;
  for (int r = 0; r < comm_.size(); ++r) {
    if (r == comm_.rank()) continue;
    TriremeMpiRequest request;
    if (comm_.api.send(comm_.handle(), &sent->report, sizeof report, sizeof report, kByteType, r,
                       comm_.tag(MpiCommunicator::kReports), &request) == 0)
      sent->requests.push_back(request);
  }
  sent_.push_back(std::move(sent));
}

std::optional<std::pair<int, MpiReport>> MpiReports::next() {
  const auto& api = comm_.api;
  const int tag = comm_.tag(MpiCommunicator::kReports);
  bool found = false;
  int32_t source = -1;
  if (api.probe(comm_.handle(), tag, &found, &source) != 0 || !found) return std::nullopt;
  auto got = std::make_unique<MpiReport>();
  TriremeMpiRequest request;
  if (api.recv(comm_.handle(), got.get(), sizeof *got, sizeof *got, kByteType, source, tag,
               &request))
    return std::nullopt;
  // It has arrived: MPI buffers messages of this size until they are received.
  const Deadline patience = Deadline::after(std::chrono::seconds(1));
  TriremeMpiStatus status{};
  for (bool done = false; !done; ::sched_yield()) {
    if (api.test(&request, &done, &status) != 0) return std::nullopt;
    if (done || !patience.expired()) continue;
    api.abandon(&request, 1);
    [[maybe_unused]] MpiReport* kept = got.release();  // MPI may still write it
    return std::nullopt;
  }
  const MpiReport none;
  if (status.bytes != sizeof none || got->magic != none.magic || got->version != none.version)
    return std::nullopt;
  got->text[sizeof got->text - 1] = 0;
  return std::pair{static_cast<int>(source), *got};
}

MpiReports::~MpiReports() {
  for (auto& sent : sent_) {
    std::vector<TriremeMpiRequest> left;
    for (TriremeMpiRequest request : sent->requests) {
      bool done = false;
      if (comm_.api.test(&request, &done, nullptr) == 0 && !done) left.push_back(request);
    }
    if (left.empty()) continue;
    // MPI still reads it.
    comm_.api.abandon(left.data(), left.size());
    [[maybe_unused]] Sent* kept = sent.release();
  }
}

}  // namespace trireme::detail
