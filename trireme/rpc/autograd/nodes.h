// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/intrusive_ptr.h>

#include <memory>
#include <mutex>
#include <string>
#include <type_traits>
#include <vector>

#include "trireme/rpc/autograd/ids.h"
#include "trireme/rpc/method.h"
#include "trireme/tensor/torch_compat.h"

// The nodes of the autograd graph where tensors went to another worker and came from one.
namespace trireme::rpc::autograd {

template <class T>
using NodeOf =
    std::conditional_t<std::is_same_v<compat::NodePtr, std::shared_ptr<torch::autograd::Node>>,
                       std::shared_ptr<T>, c10::intrusive_ptr<T>>;

class Received;

/// What a backward that is under way does for these nodes.
class GradientTraffic {
 public:
  virtual ~GradientTraffic() = default;
  /// Returns once the gradients of what was sent have come. Throws what went wrong.
  virtual std::vector<at::Tensor> wait_for(const Pair& pair) = 0;
  /// Those of what was received leave; undefined ones where there is none.
  virtual void leave(const Received& node, std::vector<at::Tensor> gradients) = 0;
};

/// A node of ours: with a pair, the other worker, and the backward that goes through it.
class PairNode : public torch::autograd::Node {
 public:
  PairNode(const Pair& pair, const std::shared_ptr<rpc::detail::Line>& line)
      : pair_(pair), worker_(line->peer()), member_(line->member()), line_(line) {}
  const Pair& pair() const { return pair_; }
  /// The worker at the other end.
  const std::string& worker() const { return worker_; }
  int64_t member() const { return member_; }
  const std::weak_ptr<rpc::detail::Line>& line() const { return line_; }
  /// Null: none is under way.
  void set_traffic(std::shared_ptr<GradientTraffic> traffic);

 protected:
  std::shared_ptr<GradientTraffic> traffic() const;

 private:
  const Pair pair_;
  const std::string worker_;
  const int64_t member_;
  const std::weak_ptr<rpc::detail::Line> line_;
  mutable std::mutex mutex_;
  std::shared_ptr<GradientTraffic> traffic_;
};

/// Where tensors left: gradients that come back enter here. Its one input stands for no tensor: by
/// it a backward begins here, and after some of the Received.
class Sent final : public PairNode {
 public:
  static NodeOf<Sent> make(const Pair& pair, const std::shared_ptr<rpc::detail::Line>& line);
  using PairNode::PairNode;
  std::string name() const override { return "RemoteSend"; }
  void add(const at::Tensor& tensor);
  /// A gradient for its input.
  static at::Tensor nothing();

 private:
  torch::autograd::variable_list apply(torch::autograd::variable_list&& unused) override;
};

/// Where tensors came: their gradients leave here, all at once.
class Received final : public PairNode {
 public:
  /// `context`: by which a backward knows that the node is its own.
  static NodeOf<Received> make(const Pair& pair, const std::shared_ptr<rpc::detail::Line>& line,
                               const ContextId& context, std::weak_ptr<void> owner);
  Received(const Pair& pair, const std::shared_ptr<rpc::detail::Line>& line,
           const ContextId& context, std::weak_ptr<void> owner)
      : PairNode(pair, line), context_(context), owner_(std::move(owner)) {}
  std::string name() const override { return "RemoteReceive"; }
  static void add(const NodeOf<Received>& node, at::Tensor& tensor);
  const ContextId& context() const { return context_; }
  bool belongs_to(const std::shared_ptr<void>& owner) const { return owner_.lock() == owner; }

  /// For a backward: makes these come after it. `end()` is then what shows the engine that this
  /// node is wanted.
  void begin(const std::vector<NodeOf<Sent>>& later);
  torch::autograd::Edge end() const;
  void finish();

 private:
  torch::autograd::variable_list apply(torch::autograd::variable_list&& gradients) override;

  const ContextId context_;
  const std::weak_ptr<void> owner_;
};

}  // namespace trireme::rpc::autograd
