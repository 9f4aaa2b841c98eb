// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "trireme/rpc/autograd/nodes.h"
#include "trireme/rpc/codec/tensor_crossing.h"

namespace trireme::rpc::autograd {

class BackwardPart;

/// What a worker has of a context: the nodes where its tensors left, the gradients of its
/// parameters, the other workers. Threads: any.
class LocalContext final : public rpc::detail::CallContext,
                           public std::enable_shared_from_this<LocalContext> {
 public:
  using LinePtr = std::shared_ptr<rpc::detail::Line>;

  LocalContext(const ContextId& id, std::string worker, int64_t member)
      : id_(id), worker_(std::move(worker)), member_(member) {}
  ~LocalContext() override;

  const ContextId& id() const { return id_; }
  /// The worker that has this, not the one that began it.
  const std::string& worker() const { return worker_; }
  int64_t member() const { return member_; }

  std::shared_ptr<rpc::detail::Crossing> leaving(const LinePtr& to) override;
  /// A call came by it.
  std::shared_ptr<rpc::detail::Crossing> arrived(const rpc::wire::Context& said,
                                                 const LinePtr& from);
  /// A node for tensors that leave, which the context keeps; null: it is over.
  NodeOf<Sent> new_sent(const Pair& pair, const LinePtr& line);
  /// A node that a gradient may come to. UsageError: there is none, or an earlier backward let go
  /// of it.
  NodeOf<Sent> sent(const Pair& pair);
  void let_go(const std::vector<Pair>& sent);

  using Gradients = std::vector<std::pair<at::Tensor, at::Tensor>>;
  /// Parameters and what they have got, in the order in which they first got some.
  Gradients gradients() const;
  at::Tensor gradient(const at::Tensor& parameter) const;
  void add_gradient(const at::Tensor& parameter, at::Tensor gradient);
  void clear_gradients();

  /// The number of a backward from here. UsageError: another one is under way.
  uint64_t next_backward();
  /// Of the backward with this number, which replaces any earlier one. UsageError: it is an old
  /// one.
  std::shared_ptr<BackwardPart> part(uint64_t number, bool accumulate,
                                     const std::shared_ptr<rpc::detail::Executor>& executor);
  /// The one that is under way. UsageError: it is another one, or none.
  std::shared_ptr<BackwardPart> part(uint64_t number) const;
  std::shared_ptr<BackwardPart> part_now() const;
  /// It is done or has failed.
  void end_part(const BackwardPart* part);

  /// Workers that were called within it from here.
  std::vector<LinePtr> called() const;
  LinePtr line_to(int64_t member) const;
  /// A channel is closed. True: nobody is left by whom this context could be ended.
  bool lost(const rpc::detail::Line* line);
  /// Lets go of everything. Once.
  void end();

 private:
  const ContextId id_;
  const std::string worker_;
  const int64_t member_;

  mutable std::mutex mutex_;
  bool ended_ = false;
  uint64_t messages_ = 0;
  std::map<Pair, NodeOf<Sent>> sent_;
  std::set<Pair> let_go_;
  Gradients gradients_;
  std::unordered_map<const void*, size_t> places_;
  std::map<const rpc::detail::Line*, std::weak_ptr<rpc::detail::Line>> to_;
  std::map<const rpc::detail::Line*, std::pair<int64_t, std::weak_ptr<rpc::detail::Line>>> from_;
  std::shared_ptr<BackwardPart> part_;
  uint64_t last_backward_ = 0;
};

}  // namespace trireme::rpc::autograd
