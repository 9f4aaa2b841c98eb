// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "trireme/comm/group.h"

namespace trireme::detail {

/// What a backend implements; Group checks arguments, makes tensors contiguous and flattens lists
/// before it calls. Tensors arrive dense and contiguous and are kept alive by the backend until
/// their call is complete.
class Backend {
 public:
  Backend(int rank, int size, Duration timeout) : rank_(rank), size_(size), timeout_(timeout) {}
  virtual ~Backend() = default;
  Backend(const Backend&) = delete;
  int rank() const { return rank_; }
  int size() const { return size_; }
  Duration timeout() const { return timeout_; }

  virtual const std::string& name() const = 0;
  virtual bool supports(Collective op, at::ScalarType dtype, at::DeviceType device) const = 0;
  virtual at::Tensor empty(at::IntArrayRef sizes, at::TensorOptions options) = 0;

  virtual Token all_reduce(const at::Tensor& tensor, ReduceOp op, CallSite site) = 0;
  virtual Token broadcast(const at::Tensor& tensor, int root, CallSite site) = 0;
  virtual Token reduce(const at::Tensor& tensor, int root, ReduceOp op, CallSite site) = 0;
  virtual Token all_gather(const at::Tensor& output, const at::Tensor& input, CallSite site) = 0;
  virtual Token reduce_scatter(const at::Tensor& output, const at::Tensor& input, ReduceOp op,
                               CallSite site) = 0;
  virtual Token send(const at::Tensor& tensor, int to, int tag, CallSite site) = 0;
  virtual Token recv(const at::Tensor& tensor, int from, int tag, CallSite site) = 0;
  virtual Token barrier(CallSite site) = 0;

  virtual void wait(Token token, Duration timeout) = 0;
  virtual bool completed(Token token) = 0;
  virtual int64_t shared_bytes() const = 0;
  virtual void progress() = 0;
  virtual void abort(const std::string& why) = 0;
  /// Runs `done` on this thread once the call is complete, before wait() returns.
  virtual void when_complete(Token token, std::function<void()> done) = 0;

 private:
  const int rank_, size_;
  const Duration timeout_;
};

}  // namespace trireme::detail
