// SPDX-License-Identifier: Apache-2.0
#include "trireme/comm/mpi/board.h"

#include <sched.h>

#include <deque>

#include "trireme/base/check.h"
#include "trireme/comm/local/types.h"

namespace trireme::detail {
namespace {

constexpr auto kByte = static_cast<uint8_t>(local::DType::u8);
constexpr int64_t kRecordBytes = 65536;

class MpiBoard final : public WaitBoard {
 public:
  explicit MpiBoard(std::unique_ptr<MpiCommunicator> comm)
      : comm_(std::move(comm)), said_(static_cast<size_t>(comm_->size())) {}
  ~MpiBoard() override {
    for (auto& sent : sent_) {
      comm_->api.abandon(sent->requests.data(), sent->requests.size());
      [[maybe_unused]] Sent* kept = sent.release();  // MPI still reads it
    }
  }

  int rank() const override { return comm_->rank(); }
  int size() const override { return comm_->size(); }

  void say(const std::string& record) override {
    // Larger records could not be read; without one, this rank's waits just go unseen.
    const bool fits = static_cast<int64_t>(record.size()) <= kRecordBytes;
    auto sent = std::make_unique<Sent>();
    sent->record = fits ? record : "";
    comm_->set_broken();  // unread messages stay behind, so it is not freed
    for (int r = 0; r < size(); ++r) {
      if (r == rank()) continue;
      TriremeMpiRequest request;
      const auto bytes = static_cast<int64_t>(sent->record.size());
      if (comm_->api.send(comm_->handle(), sent->record.data(), bytes, kRecordBytes, kByte, r, 0,
                          &request) == 0)
        sent->requests.push_back(request);
    }
    sent_.push_back(std::move(sent));
  }

  std::vector<std::string> heard() override {
    while (!sent_.empty() && settled(*sent_.front())) sent_.pop_front();
    bool found = true;
    int32_t source = -1;
    while (comm_->api.probe(comm_->handle(), 0, &found, &source) == 0 && found) receive(source);
    return said_;
  }

  void sweep() override {
    try {
      heard();
    } catch (const Error&) {  // the readers of the reports see it
    }
  }

  bool outlives_ranks() const override { return false; }

 private:
  struct Sent {
    std::string record;
    std::vector<TriremeMpiRequest> requests;
  };

  bool settled(Sent& sent) {
    while (!sent.requests.empty()) {
      bool done = false;
      if (comm_->api.test(&sent.requests.back(), &done, nullptr) != 0 || !done) return false;
      sent.requests.pop_back();
    }
    return true;
  }

  void receive(int32_t source) {
    comm_->set_broken();
    auto buffer = std::make_unique<std::string>(static_cast<size_t>(kRecordBytes), '\0');
    TriremeMpiRequest request;
    check<ResourceError>(comm_->api.recv(comm_->handle(), buffer->data(), kRecordBytes,
                                         kRecordBytes, kByte, source, 0, &request) == 0,
                         "MPI does not receive the reports of rank {}", source);
    // Its sender is inside MPI calls as long as it waits.
    const Deadline patience = Deadline::after(std::chrono::seconds(1));
    TriremeMpiStatus status{};
    for (bool done = false; !done; ::sched_yield()) {
      const int code = comm_->api.test(&request, &done, &status);
      if (code == 0 && (done || !patience.expired())) continue;
      comm_->api.abandon(&request, 1);
      [[maybe_unused]] std::string* kept = buffer.release();  // MPI may still write it
      fail<ResourceError>("the reports of rank {} do not arrive", source);
    }
    buffer->resize(static_cast<size_t>(status.bytes));
    said_[static_cast<size_t>(source)] = std::move(*buffer);
  }

  const std::unique_ptr<MpiCommunicator> comm_;
  std::vector<std::string> said_;
  std::deque<std::unique_ptr<Sent>> sent_;
};

}  // namespace

std::unique_ptr<WaitBoard> mpi_board(std::unique_ptr<MpiCommunicator> comm) {
  return std::make_unique<MpiBoard>(std::move(comm));
}

}  // namespace trireme::detail
