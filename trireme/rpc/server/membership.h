// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "trireme/optim/rows/row_gradients.h"
#include "trireme/rpc/rpc.h"
#include "trireme/rpc/server/holdings.h"
#include "trireme/rpc/server/parameter_client.h"
#include "trireme/rpc/server/plan/placement.h"
#include "trireme/rpc/server/protocol.h"
#include "trireme/tensor/torch_compat.h"

namespace trireme::rpc::server {

/// A worker among the workers of some servers: what ParameterClient and ShardedEmbedding share.
class Membership {
 public:
  Membership(Worker me, NamedTensors parameters, ClientOptions options);
  ~Membership();
  Membership(const Membership&) = delete;

  int64_t steps() const { return step_; }
  void step(double lr);
  void pull();
  void leave();

  size_t table(const std::string& name) const;
  const TableOptions& table_options(size_t table) const { return options_.tables[table]; }
  int servers() const { return static_cast<int>(servers_.size()); }
  /// Rows of a table, each once: [found.rows.size(), width]. With `keeps`, they are a leaf whose
  /// gradients step() will send.
  at::Tensor rows(size_t table, const plan::DistinctRows& found, bool keeps);

 private:
  struct Parameter {
    std::string name;
    at::Tensor tensor;
    size_t server = 0;
    uint32_t key = 0;     // at its server
    bool left = false;    // its gradient of this step is on its way (overlap)
    int64_t version = 0;  // of that gradient
  };
  struct Server {
    std::string name;
    std::vector<Key> keys;
    std::vector<size_t> parameters;  // by key
    BufferPlan buffers;
    std::optional<Peer> peer;
    Future<void> attendance;
    bool current = false;  // this worker may make its step there
    std::vector<Future<Answer>> pushes;
    std::vector<size_t> ready;  // parameters whose gradients leave next (overlap)
    int64_t ready_bytes = 0, pushed = 0;
  };
  /// What a lookup since the last step has brought.
  struct Touched {
    plan::DistinctRows found;
    at::Tensor rows;
  };
  /// Servers have gone back, or are about to.
  struct Over {};

  // membership.cc
  void take_parameters(const NamedTensors& given);
  void place_parameters();
  void check_here() const;

  // membership_join.cc
  void join(bool with_weights);
  void meet(Deadline deadline);
  Join join_of(size_t server) const;
  void come_back(bool made);

  // membership_push.cc
  void became_ready(size_t parameter);
  void push_ready(Server& server);
  void push_all(double lr);
  void send(Server& server, Push push, const std::vector<size_t>& parameters);
  void add_tables(size_t server, Push& push) const;
  void wait_for_pushes();
  void wait_quietly();
  void check_gradients();
  void check_rows();
  void begin_attempt();
  void forget_gradients();

  // membership_pull.cc
  void get_weights(int64_t step, bool from_all);
  void put(const Server& server, const Weights& weights);
  template <class M, class Request>
  auto answer(size_t server, const Request& request, Future<detail::ResultOf<M>> future,
              int64_t step, Deadline deadline);
  template <class M, class Request>
  auto ask(size_t server, const Request& request, Duration most);
  void complain(size_t server, int64_t step, Deadline deadline, bool& said) const;

  const Worker me_;
  ClientOptions options_;
  std::vector<Parameter> parameters_;  // by name, each once
  std::vector<Server> servers_;
  std::vector<std::vector<Touched>> touched_;  // by table
  bool synchronous_ = true;
  uint64_t epoch_ = 0;
  int64_t step_ = -1;
  int64_t attempt_ = 0;
  bool pushed_ = false;   // the gradients of this step
  bool dropped_ = false;  // servers went back within a forward: its gradients do not count
  bool left_ = false;
  std::string twice_, not_finite_;       // parameters, as backward found them (overlap)
  std::vector<compat::GradHook> hooks_;  // the last member: they use the others
};

/// Numbers begin to end - 1 of the rows.
at::Tensor rows_of(const plan::DistinctRows& found, int64_t begin, int64_t end);

}  // namespace trireme::rpc::server
