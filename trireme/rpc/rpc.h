// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <memory>
#include <source_location>
#include <string>
#include <utility>
#include <vector>

#include "trireme/base/clock.h"
#include "trireme/base/export.h"
#include "trireme/rpc/call.h"
#include "trireme/rpc/errors.h"
#include "trireme/rpc/future.h"
#include "trireme/rpc/method.h"
#include "trireme/rpc/metrics.h"
#include "trireme/rpc/object/remote_class.h"
#include "trireme/rpc/options.h"
#include "trireme/rpc/remote.h"

// Calls of functions on other workers, by name or rank:
//
//   TRIREME_REMOTE(evaluate, &Table::pull);
//   auto me = rpc::init({.name = "server0", .offers = {rpc::offer<evaluate>(table)}});  // there
//   auto me = rpc::init({.name = "trainer0"});                                          // here
//   auto server = me.peer("server0", {.deadline = 2s});
//   rpc::Future<double> f = server.async<evaluate>(batch);
//
// A call runs at most once. It ends by its deadline in any case: with a value, with what its
// handler threw (rpc/errors.h), with CallLost when the other worker is gone, or with Timeout.
namespace trireme::rpc {

struct SpawnOptions;
template <class A>
class ActorGroup;

namespace detail {
class Agent;
struct Access;
}  // namespace detail

/// One worker as another calls it. Copies are the same. Where it is gone, every call fails; peer()
/// finds the one that has its name then. Threads: any.
class TRIREME_API Peer {
 public:
  const std::string& name() const { return line_->peer(); }

  /// Calls M there and waits for nobody, unless more is under way than Options allows. What goes
  /// wrong is in the Future. Tensors among the arguments must not change until it is ready.
  template <class M, class... A>
  requires CanCall<M, A...> Future<detail::ResultOf<M>> async(A&&... arguments)
  const {
    using Result = detail::ResultOf<M>;
    auto state = std::make_shared<detail::FutureState<Result>>(line_->executor());
    state->comes_by(line_->road());
    detail::Outgoing outgoing;
    outgoing.method = M::kName;
    outgoing.signature = &detail::signature_of<M>();
    outgoing.future = state;
    try {
      if (const auto& context = detail::current_context())
        outgoing.crossing = context->leaving(line_);
      detail::CallTransit transit(line_, outgoing.crossing);
      outgoing.arguments.set_transit(&transit);
      detail::put_all(static_cast<detail::ValuesOf<M>*>(nullptr), outgoing.arguments,
                      std::forward<A>(arguments)...);
      outgoing.arguments.set_transit(nullptr);
      outgoing.passage = std::move(transit.passage);
    } catch (...) {
      state->fail(std::current_exception());
      return Future<Result>(std::move(state));
    }
    outgoing.fill = [state = state.get()](encoding::Reader& reader) {
      detail::Stored<Result> value{};
      if constexpr (!std::is_void_v<Result>) reader.get(value);
      if (!reader.done()) encoding::left_over();
      state->set(std::move(value));
    };
    line_->call(std::move(outgoing), deadline_of_call());
    return Future<Result>(std::move(state));
  }
  /// Makes an object of class X at this worker, or has it keep what a call of X returns: an RRef
  /// that can be used at once (rpc/object/rref.h).
  template <class X, class... A>
  requires detail::CanMake<X, A...> RRef<detail::Made<X>> remote(
      detail::Located<detail::FirstOf<X>> first, A&&... arguments)
  const;
  template <class X>
  requires detail::CanMakeOfNothing<X> RRef<detail::Made<X>> remote(
      std::source_location where = std::source_location::current())
  const;
  /// async() and get().
  template <class M, class... A>
  requires CanCall<M, A...> detail::ResultOf<M> sync(A&&... arguments)
  const { return async<M>(std::forward<A>(arguments)...).get(); }
  /// Memory for an argument of this worker's that travels without a copy, where the road has such
  /// (rpc/codec/tensor.h makes a tensor of it). Aligned to 64 bytes at least.
  std::shared_ptr<void> empty(uint64_t bytes) const { return line_->empty(bytes); }
  /// The same worker with another deadline for each call.
  Peer with(Duration deadline) const { return Peer(line_, deadline); }

 private:
  friend class Worker;
  friend struct detail::Access;
  Peer(std::shared_ptr<detail::Line> line, Duration deadline)
      : line_(std::move(line)), deadline_(deadline) {}
  Deadline deadline_of_call() const {
    return deadline_ == Duration::max() ? Deadline::never() : Deadline::after(deadline_);
  }

  std::shared_ptr<detail::Line> line_;
  Duration deadline_;
};

struct PeerOptions {
  /// Of each call, and of finding the worker; Duration::min(): Options::deadline.
  Duration deadline = Duration::min();
};

/// This worker; copies are the same one. When the last one is destroyed it leaves at once: calls
/// that it made fail, and its handlers are told to stop. Destroy it where the program still has
/// what handlers use. Threads: any, those of its own handlers too.
class TRIREME_API Worker {
 public:
  const std::string& name() const;
  /// Waits until a worker of this name or rank is there and can be called. Timeout, CallLost, and
  /// Mismatch for a worker of another build. This worker may call itself.
  Peer peer(const std::string& name, PeerOptions options = {}) const;
  Peer peer(int rank, PeerOptions options = {}) const;
  /// Those that are there now, this one among them.
  std::vector<std::string> workers() const;
  /// What the calls of each method came to so far, those made and those answered, by name.
  std::vector<MethodMetrics> metrics() const;
  /// Threads that are ours, for those who count.
  int threads() const;
  /// Actors, one on each of these workers (rpc/actor/actor.h).
  template <class A, std::same_as<std::vector<std::string>> Names, class... P>
  ActorGroup<A> spawn(const Names& workers, P&&... arguments) const;
  template <class A, class... P>
  ActorGroup<A> spawn(const SpawnOptions& options, P&&... arguments) const;
  /// Leaves the job; see ShutdownOptions. Later calls of this worker fail with Aborted. Any further
  /// shutdown() does nothing.
  void shutdown(const ShutdownOptions& options = {}) const;

 private:
  friend TRIREME_API Worker init(Options options);
  friend struct detail::Access;
  explicit Worker(std::shared_ptr<detail::Agent> agent) : agent_(std::move(agent)) {}
  std::shared_ptr<detail::Agent> agent_;
};

namespace detail {

/// For the folders of rpc/: what stands behind a Peer and a Worker.
struct TRIREME_API Access {
  static Peer make(std::shared_ptr<Line> line, Duration deadline) {
    return Peer(std::move(line), deadline);
  }
  static const std::shared_ptr<Line>& line(const Peer& peer) { return peer.line_; }
  static Duration deadline(const Peer& peer) { return peer.deadline_; }

  static Worker worker(std::shared_ptr<Agent> agent) { return Worker(std::move(agent)); }
  static const std::shared_ptr<Agent>& agent(const Worker& worker) { return worker.agent_; }
  /// What was offered with it; null: nothing was.
  static const std::shared_ptr<Carrier>& carrier(const Worker& worker);
  static Duration deadline(const Worker& worker);
  static const std::shared_ptr<Objects>& objects(const Worker& worker);
};

}  // namespace detail

/// Joins the job as a worker, and waits for no other one. The job is that of `trireme run`,
/// torchrun, srun or mpirun, which started this process; where none did, it is the process itself.
/// A process and each of its threads may have several workers. UsageError: a name or a rank that
/// another worker has, offers of one name, variables that contradict each other, no secret where
/// workers are on several hosts; ResourceError; Timeout: the store is not there by
/// Options::deadline; what else the store throws.
TRIREME_API Worker init(Options options);

}  // namespace trireme::rpc
