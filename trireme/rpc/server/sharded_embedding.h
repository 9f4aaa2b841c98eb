// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <string>

#include "trireme/base/export.h"
#include "trireme/rpc/server/parameter_client.h"

namespace trireme::rpc {

/// An embedding whose table is too large for a worker: its rows live at the servers of a
/// ParameterClient, row r at server r % servers.
///
///   rpc::ParameterClient client(me, {}, {.servers = {"server0", "server1"}, .rank = rank,
///                                        .tables = {{"items", 10'000'000, 32, at::kFloat,
///                                        0.05}}});
///   rpc::ShardedEmbedding items(client, "items");
///   DistributedDataParallel ddp(net, world);      // the dense part
///   …
///   loss(net->forward(items.forward(ids)), targets).backward();
///   client.step(0.1);                             // rows
///   optimizer->step(0.1);                         // the dense part
///
/// A lookup asks each server once, for each row once, and gives the rows gradients like any other
/// tensor. The next step() of the client sends the gradients of all rows that lookups since the
/// last one touched, each row once; the server divides by the number of workers where it is
/// synchronous, and steps over these rows only (optim/rows).
///
/// One thread, the client's; the client must outlive it, and ranks that hold parts of one table
/// step equally often.
class TRIREME_API ShardedEmbedding {
 public:
  /// UsageError: the client has no such table.
  ShardedEmbedding(ParameterClient& client, const std::string& table);

  /// The rows of these ids, [..., width] for ids [...] of int64, on the CPU. Without grad mode (or
  /// outside of training) nothing is kept for step(). UsageError for an id that is no row; Timeout
  /// and CallLost as of step().
  at::Tensor forward(const at::Tensor& ids) const;
  at::Tensor operator()(const at::Tensor& ids) const { return forward(ids); }

 private:
  server::Membership* membership_;
  size_t table_;
};

}  // namespace trireme::rpc
