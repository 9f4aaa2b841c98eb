// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "trireme/base/clock.h"
#include "trireme/base/export.h"
#include "trireme/rpc/rpc.h"
#include "trireme/tensor/parameter_table.h"

// A worker whose parameters live at servers (rpc/server/parameter_server.h):
//
//   auto me = rpc::init({.name = "trainer0"});
//   rpc::ParameterClient client(me, named_parameters(*net),
//                               {.servers = {"server0", "server1"}, .rank = 0});
//   while (client.steps() < 1000) {
//     zero_grad(net);
//     loss(net, batch_of(client.steps())).backward();
//     client.step(0.1);
//   }
namespace trireme::rpc {

namespace server {
class Membership;
}

/// A table whose rows are divided over the servers: see ShardedEmbedding.
struct TableOptions {
  std::string name;
  int64_t rows = 0, width = 0;
  at::ScalarType dtype = at::kFloat;  // or at::kDouble
  /// Its rows begin normally distributed around 0, whatever the number of servers; 0: as zeros.
  double init_std = 0;
  uint64_t seed = 0;
};

struct ClientOptions {
  /// Names of the workers that offer a ParameterServer: at least one, and the same list everywhere.
  std::vector<std::string> servers = {};
  /// This worker's number among the workers, from 0. Training begins with rank 0's values.
  int rank = 0;
  /// The same list everywhere.
  std::vector<TableOptions> tables = {};
  /// How long a step waits for other workers, and for a server that was lost to come back.
  Duration deadline = std::chrono::minutes(5);
  /// Gradients leave while backward makes the others. Then there is one backward a step, and no
  /// gradient may be changed between backward() and step() (UsageError from step()).
  bool overlap = false;
};

/// Parameters are told apart by name, so workers may list them in any order; each is whole at one
/// server. One that is listed under two names is one. One that requires no gradient only begins
/// with rank 0's value.
///
/// A gradient that is undefined counts as zeros, and if it is so at every worker, the parameter
/// stays as it is. Gradients are read from p.grad(), are not changed, and may be once step() has
/// returned. Those that leave in half precision are added in float32 and rounded once.
///
/// A worker that dies is left out, and the others go on: its last gradients count at the servers
/// that have all of them. A server that dies may come back under its name, with its checkpoint;
/// workers wait for it. Synchronous servers then all go back to one step: steps() is less than it
/// was, the parameters are those of that step, and the loop goes on from there. With staleness the
/// server that was lost goes on with the parameters of its newest checkpoint.
///
/// One thread. The worker must outlive it.
class TRIREME_API ParameterClient {
 public:
  /// Joins all servers and returns when training may begin; then the parameters hold the servers'
  /// values. Mismatch, naming the parameter and the workers: another worker has other parameters.
  /// UsageError: options, a rank that another worker has or that was left out, parameters that
  /// cannot travel. Timeout and CallLost: a server did not come.
  ParameterClient(Worker me, NamedTensors parameters, ClientOptions options);
  /// leave().
  ~ParameterClient();
  ParameterClient(ParameterClient&&) noexcept;

  /// The step that comes next. Choose its batch by it.
  int64_t steps() const;
  /// Sends the gradients, and returns when this worker may begin the next step and has the weights
  /// for it. Synchronous: all workers give the same learning rate. With tables alone it returns
  /// when the gradients are on their way: the next lookup waits, and throws what went wrong.
  ///
  /// NumericError, naming the parameter: a gradient is not finite; nothing counts as sent, and
  /// step() may be called again with other gradients. Timeout, naming who is waited for: the
  /// gradients have been sent; a further step() waits on. Mismatch: another learning rate than that
  /// of other workers. UsageError: a sparse gradient, or one that was changed (overlap).
  void step(double lr);
  /// Takes the servers' values without a step.
  void pull();
  /// This worker makes no more steps, and nobody waits for it. Further calls are UsageErrors.
  void leave();

 private:
  friend class ShardedEmbedding;
  std::unique_ptr<server::Membership> membership_;
};

}  // namespace trireme::rpc
