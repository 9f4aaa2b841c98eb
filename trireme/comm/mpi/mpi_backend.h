// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "trireme/comm/backend.h"
#include "trireme/comm/local/types.h"
#include "trireme/comm/mpi/communicator.h"
#include "trireme/comm/mpi/large_plan.h"
#include "trireme/comm/mpi/reports.h"
#include "trireme/store/server/tcp_server.h"

namespace trireme::detail {

class MpiBackend final : public Backend {
 public:
  MpiBackend(std::unique_ptr<MpiCommunicator> comm, Duration timeout, const MpiLimits& limits);
  ~MpiBackend() override;

  const std::string& name() const override;
  bool supports(Collective op, at::ScalarType dtype, at::DeviceType device) const override;
  bool supports(ReduceOp op, at::ScalarType dtype) const override;
  at::Tensor empty(at::IntArrayRef sizes, at::TensorOptions options) override;

  // collectives.cc
  Token post(const Call& call) override;

  // progress.cc
  void wait(Token token, Duration timeout) override;
  bool completed(Token token) override;
  int source(Token token) override;
  int64_t shared_bytes() const override { return 0; }
  void progress() override;
  void abort(const std::string& why, AbortKind kind) override;
  bool on_stall(std::function<void()> look) override {
    look_ = std::move(look);
    return true;
  }
  bool mixes_up_calls() const override { return true; }
  std::unique_ptr<WaitBoard> make_board() override;
  void when_complete(Token token, std::function<void()> done) override;

  std::shared_ptr<Backend> subgroup(const std::vector<int>& members,
                                    const std::string& name) override;

 private:
  /// What messages say about a call.
  struct What {
    Collective op = Collective::none;
    CallSite site;
    at::ScalarType dtype = at::kByte;
    int64_t count = 0;
    int peer = -1;          // of a pair
    uint64_t sequence = 0;  // of a collective; 0: a message
  };
  struct Request {
    TriremeMpiRequest bits;
    int64_t expected = -1;  // bytes of a receive
  };
  /// MPI reads and writes what it keeps until all requests are complete.
  struct Pending {
    What call;
    std::vector<Request> requests;
    std::vector<at::Tensor> keep;
    int source = -1;
    std::function<void()> finish;  // our own, then the group's
    std::function<void()> done;
  };
  using Table = std::map<uint64_t, std::unique_ptr<Pending>>;
  struct Failure {
    MpiReport::Kind kind;
    int peer;  // the rank that reported it; -1: this rank found it, or gave up
    std::string text;
  };

  // collectives.cc
  /// Starts a call; `start` adds its requests and returns MPI's code.
  Token launch(const Call& call, std::vector<at::Tensor> keep,
               const std::function<int(Pending&)>& start, std::function<void()> finish = {});
  Token all_reduce(const Call& call);
  Token broadcast(const Call& call);
  Token reduce(const Call& call);
  Token all_gather(const Call& call);
  Token reduce_scatter(const Call& call);
  Token gather(const Call& call);
  Token scatter(const Call& call);
  Token all_to_all(const Call& call);
  Token message(const Call& call);
  Token barrier(const Call& call);
  int start_request(Pending& p, const std::function<int(TriremeMpiRequest*)>& start,
                    int64_t expected = -1);
  int start_send(Pending& p, const char* data, int64_t count, int64_t size, uint8_t dtype, int to,
                 int tag);
  int start_recv(Pending& p, char* data, int64_t count, int64_t size, uint8_t dtype, int from,
                 int tag);
  /// Parts of one rank for another, sent as messages of pairs; a count of kNoMessage means no
  /// message.
  static constexpr int64_t kNoMessage = -1;
  int exchange(Pending& p, const char* in, const std::vector<int64_t>& in_counts, char* out,
               const std::vector<int64_t>& out_counts, int64_t size, uint8_t dtype);
  std::function<void()> divide(const at::Tensor& tensor, ReduceOp op) const;

  // progress.cc
  void check_usable() const;
  [[noreturn]] void rethrow() const;
  /// Ends the group and notifies the others.
  [[noreturn]] void give_up(MpiReport::Kind kind, const std::string& text);
  [[noreturn]] void give_up(const What& call, int code);
  [[noreturn]] void time_out(const What& call, Duration waited);
  /// Returns true when all its requests are complete.
  bool advance(Pending& p);
  void complete(Table::iterator at);
  /// Reads the others' reports from time to time.
  void listen(const Pending* waiting, Duration waited);
  std::string text_of(const What& call) const;

  std::shared_ptr<StoreServer> board_server_;  // of rank 0, for all groups made of the first
  std::unique_ptr<MpiCommunicator> comm_;
  MpiReports reports_;
  const MpiLimits limits_;
  Table pending_;
  uint64_t posted_ = 0, collectives_ = 0;
  std::map<uint64_t, int> sources_;  // of the latest complete receives from any rank
  std::optional<Failure> failure_;
  std::map<int, MpiReport> heard_;
  Clock::time_point next_listen_{};
  std::function<void()> look_;  // called when this rank waits for long
};

}  // namespace trireme::detail
