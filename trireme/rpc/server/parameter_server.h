// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "trireme/base/clock.h"
#include "trireme/base/export.h"
#include "trireme/optim/master_weights.h"
#include "trireme/optim/rows/row_optimizer.h"
#include "trireme/rpc/remote.h"

// Servers that hold a model's parameters, to which workers send gradients:
//
//   rpc::ParameterServer server({.workers = 2,
//                                .optimizer = [](NamedTensors p) { return make_adamw(std::move(p));
//                                }, .folder = "server0"});
//   auto me = rpc::init({.name = "server0", .offers = {server.offer()}});
//   server.wait();  // until every worker has left
//   me.shutdown();
//
// Workers: rpc/server/parameter_client.h, and rpc/server/sharded_embedding.h for tables of rows. A
// server knows no model: workers bring names, shapes and the values with which training begins. A
// worker may hold a server too.
namespace trireme::rpc {

namespace server {
class Node;
}

struct ServerOptions {
  /// How many workers there are, with ranks from 0.
  int workers = 1;
  /// Unset: synchronous. A step is made when every worker has given its gradients, of their mean,
  /// added in the order of DistributedDataParallel: with an optimizer that treats elements alone,
  /// the weights have its bits. Otherwise each worker's gradients are a step of their own, made as
  /// they come, and a worker begins no step while another one is more than so many steps behind.
  std::optional<int64_t> staleness = {};
  /// Makes the optimizer of the parameters that this server has, one for each dtype.
  /// Half-precision ones get float32 masters (optim/master_weights.h). Empty: SGD.
  MakeOptimizer optimizer = {};
  /// The same of each table's rows. Empty: row SGD.
  std::function<std::unique_ptr<RowOptimizer>(RowTable)> row_optimizer = {};
  /// Where this server alone keeps checkpoints, and looks for one as it begins; "": none. The three
  /// newest stay.
  std::string folder = {};
  /// A checkpoint every so many steps; without staleness a step is everybody's.
  int64_t save_every = 100;
};

/// One server. Offer it in rpc::Options and keep it until the worker has shut down; destroyed
/// earlier, its calls go on as long as the worker keeps what it offers. Threads: any.
class TRIREME_API ParameterServer {
 public:
  /// UsageError: options out of range.
  explicit ParameterServer(ServerOptions options);
  ~ParameterServer();
  ParameterServer(ParameterServer&&) noexcept;

  /// What workers call. A worker of the job offers one server.
  Offer offer() const;
  /// Steps made: everybody's, or with staleness all workers' together. Not those of workers that
  /// are under way.
  int64_t steps() const;
  /// Returns once every worker has left or is lost, and all is saved. A server that has come back
  /// with staleness cannot know of workers that have ended meanwhile: it waits for them another
  /// minute. False: the deadline has passed.
  bool wait(Deadline deadline = Deadline::never()) const;

 private:
  std::shared_ptr<server::Node> node_;
};

}  // namespace trireme::rpc
