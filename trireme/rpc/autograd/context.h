// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "trireme/base/export.h"
#include "trireme/rpc/autograd/ids.h"
#include "trireme/rpc/rpc.h"

// Backward through remote calls. What workers compute for each other within a context is one graph:
//
//   auto me = rpc::init({.name = "trainer0", .offers = {rpc::autograd::offer()}, …});
//   {
//     rpc::autograd::Context context(me);       // calls of this thread are within it from here on
//     at::Tensor loss = server.sync<forward>(x).sum();
//     context.backward({loss});                 // on all workers that took part
//     for (auto& [parameter, gradient] : context.gradients()) …   // this worker's
//   }                                           // and it is over, everywhere
//
// Tensors that require a gradient stay connected when they travel as arguments or results of calls
// within a context. Calls that their handlers make are within it too, and so is what continues
// after a Future. Each worker that takes part offers rpc::autograd::offer().
// (torch.distributed.autograd; in its words, the algorithm is "smart mode": what the losses do not
// depend on is neither computed nor waited for.)
namespace trireme::rpc::autograd {

/// For rpc::Options::offers: this worker takes part in contexts. One call for each worker.
TRIREME_API Offer offer();

/// Parameters (leaves that require a gradient) with what they have got.
using Gradients = std::vector<std::pair<at::Tensor, at::Tensor>>;

struct BackwardOptions {
  /// Keeps what forward saved, for a further backward().
  bool retain_graph = false;
  /// Gradients go into grad() of the parameters, through their accumulators and hooks, as a local
  /// backward's do, so that DistributedDataParallel reduces them. False: they are added up in the
  /// context, and grad() stays as it is: several contexts may use one parameter at a time.
  bool accumulate = false;
  /// Duration::min(): Options::deadline of the worker.
  Duration deadline = Duration::min();
};

/// From its construction to its destruction, on one thread. It is over then on all workers; it also
/// is where the worker that began it is gone. Threads: backward() on one at a time, the rest on
/// any.
class TRIREME_API Context {
 public:
  /// UsageError: the worker does not offer offer().
  explicit Context(const Worker& me);
  ~Context();
  Context(const Context&) = delete;

  const ContextId& id() const;
  /// Computes the gradients of the sum of these losses, each of one number, on all workers that it
  /// depends on. Hooks run on each as in a local backward; a parameter's own hook once, with all
  /// that it gets there.
  ///
  /// Throws what goes wrong on any worker: PeerLost for one that is gone, Timeout at the deadline,
  /// RemoteError with LibTorch's text (a tensor that was changed in place, say). Gradients are
  /// undefined then, and the graph may be gone: end the context. UsageError: a loss that requires
  /// no gradient, or depends on another context; a graph that an earlier backward() let go of.
  /// There is no double backward: gradients are numbers, and require none.
  void backward(const std::vector<at::Tensor>& losses, const BackwardOptions& options = {});
  /// Of this worker's parameters, in the order in which they first got one.
  Gradients gradients() const;
  /// Undefined: it has got none.
  at::Tensor gradient(const at::Tensor& parameter) const;

  /// While it lives, calls of its thread are within the context too.
  class TRIREME_API Within {
   public:
    explicit Within(const Context& context);
    ~Within();
    Within(const Within&) = delete;

   private:
    struct State;
    const std::unique_ptr<State> state_;
  };

 private:
  struct State;
  const std::unique_ptr<State> state_;
};

/// In a handler: the context that it was called within.
TRIREME_API std::optional<ContextId> current();
/// What this worker's parameters have got in a context that another worker may have begun.
/// UsageError: it is over, or no call has come within it.
TRIREME_API Gradients gradients(const Worker& me, const ContextId& id);
/// Contexts that this worker knows of, for those who count.
TRIREME_API int64_t contexts(const Worker& me);

}  // namespace trireme::rpc::autograd
