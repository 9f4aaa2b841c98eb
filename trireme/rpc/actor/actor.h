// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "trireme/rpc/actor/group.h"
#include "trireme/rpc/actor/host.h"
#include "trireme/rpc/actor/place.h"
#include "trireme/rpc/actor/supervision.h"
#include "trireme/rpc/actor/typed.h"
#include "trireme/rpc/remote.h"
#include "trireme/rpc/rpc.h"

// Actors: objects that live at other workers and take one message at a time.
//
//   struct Sim {
//     Sim(const rpc::ActorPlace& place, double gravity);
//     double run(int64_t steps);
//     void reset();
//   };
//   TRIREME_ACTOR(Sim, const rpc::ActorPlace&, double);  // its constructor's parameters
//   TRIREME_REMOTE(run, &Sim::run);
//   TRIREME_REMOTE(reset, &Sim::reset);
//
//   auto me = rpc::init({.name = "sim0", .offers = {rpc::offer_actor<Sim, run, reset>()}, …});  //
//   there
//
//   auto sims = me.spawn<Sim>({.workers = {"sim0", "sim1"}}, 9.8);                            //
//   here sims.broadcast<reset>();                                    // to all, without answers
//   rpc::Future<double> one = sims.call<run>(0, 100);           // rank 0 of the group
//   for (auto& reply : sims.gather<run>(100)) use(reply.get()); // all, in order
//
// One message at a time: from its handler's call until its answer is there, which may be later
// where the handler returns a Future. Messages of one worker are taken in the order in which it
// sent them, whichever of its threads did; those of different workers in the order in which they
// come. A handler needs no lock for what its object has. While one actor computes or waits, others
// of its worker go on.
//
// An actor whose handler would wait, in get() or by its Future, for a message to itself, directly
// or through other actors, does not wait for ever: that message fails at once, with the chain of
// calls. Continuing with then() and returning is fine, and so is a broadcast. Two actors that each
// wait for the other, in calls of their own, wait until the deadline.
//
// Who spawned actors supervises them (SpawnOptions::supervision): what becomes of one that throws,
// and of one whose worker is gone. Messages that were under way to an actor that failed are lost
// (CallLost, which says whether they began); nothing is delivered twice. When the group, or the
// worker that spawned it, is gone, so are the actors.
namespace trireme::rpc {

/// Names a class whose objects may be actors, and the types of its constructor's parameters: of
/// types that base/encoding.h knows, by value or const&; the first one may be
/// `const rpc::ActorPlace&`, which is not sent. In the class's namespace. The name is one in all
/// programs of a job.
#define TRIREME_ACTOR(Class, ...)                                                              \
  struct trireme_actor_##Class {                                                               \
    static constexpr const char* kName = #Class;                                               \
    using Parameters = ::trireme::rpc::detail::ActorParameters<void(__VA_ARGS__)>::Parameters; \
    static constexpr bool kTakesPlace =                                                        \
        ::trireme::rpc::detail::ActorParameters<void(__VA_ARGS__)>::kTakesPlace;               \
  };                                                                                           \
  inline trireme_actor_##Class trireme_actor_of(const Class*) { return {}; }

/// Actors of class A at this worker, and what they may be sent: a part of rpc::Options.
template <class A, class... M>
requires(std::derived_from<A, detail::ObjectOf<M>>&&...) Offer offer_actor() {
  const auto& type = detail::actor_type<A>();
  const auto host = std::make_shared<detail::ActorHost>(type.name);
  Offer offer;
  const auto add = [&](const std::string& name, const std::string& signature, auto run,
                       bool standing) {
    offer.methods.push_back({.name = name,
                             .signature = signature,
                             .run = std::move(run),
                             .in_order = true,
                             .standing = standing});
  };
  const auto to_actor = [&host](detail::Mailbox::Run run) {
    return [host, run](const std::shared_ptr<detail::Answering>& call) { host->put(call, run); };
  };
  add(
      type.spawn, type.signature,
      [host](const std::shared_ptr<detail::Answering>& call) {
        host->spawn(call, &detail::make_actors<A>);
      },
      true);
  add(type.ready, type.signature,
      to_actor([](void*, const std::shared_ptr<detail::Message>& message) {
        message->reply(message->result());
      }),
      false);
  add(
      type.waited_for, "void()",
      [host](const std::shared_ptr<detail::Answering>& call) { host->waited_for(call); }, false);
  (add(detail::actor_method<A, M>(), detail::signature_of<M>(),
       to_actor(&detail::run_message<A, M>), false),
   ...);
  return offer;
}

/// What an actor is known by to other workers than the one that spawned it: may be an argument, a
/// result or a member of one. It is of one life of the actor on one worker.
template <class A>
struct ActorId {
  std::string worker;
  uint64_t number = 0;
  TRIREME_FIELDS(worker, number)
};

/// An actor as others than its group call it. Copies are the same. Threads: any.
template <class A>
class Actor {
 public:
  /// `me`: the worker that calls. Waits until its worker can be called; what Worker::peer() throws.
  Actor(const Worker& me, const ActorId<A>& id, PeerOptions options = {})
      : Actor(me.peer(id.worker, options), id.number) {}

  template <class M, class... P>
  requires detail::CanSend<A, M, P...> Future<detail::ResultOf<M>> call(P&&... arguments)
  const {
    return detail::ask<A, M>(
        line_->executor(), line_->road(), *tickets_,
        [this](detail::Outgoing message, uint64_t ticket) { send(std::move(message), ticket); },
        std::forward<P>(arguments)...);
  }
  /// Without an answer.
  template <class M, class... P>
  requires detail::CanSend<A, M, P...>
  void tell(P&&... arguments) const {
    detail::tell<A, M>(
        line_->executor(), *tickets_,
        [this](detail::Outgoing message, uint64_t ticket) { send(std::move(message), ticket); },
        std::forward<P>(arguments)...);
  }
  ActorId<A> id() const { return {line_->peer(), number_}; }

 private:
  Actor(const Peer& peer, uint64_t number)
      : line_(detail::Access::line(peer)),
        number_(number),
        deadline_(detail::Access::deadline(peer)) {}
  void send(detail::Outgoing message, uint64_t ticket) const {
    detail::send_to(line_, detail::actor_type<A>(), std::move(message), number_, ticket,
                    deadline_ == Duration::max() ? Deadline::never() : Deadline::after(deadline_));
  }

  std::shared_ptr<detail::Line> line_;
  std::shared_ptr<detail::Tickets> tickets_ = std::make_shared<detail::Tickets>();
  uint64_t number_;
  Duration deadline_;
};

/// What one actor of a group answered.
template <class T>
struct Reply {
  int rank = 0;
  std::exception_ptr error;  // null: it answered
  std::optional<detail::Stored<T>> value;

  bool ok() const { return error == nullptr; }
  /// The value, or throws the error.
  T get() {
    if (error) std::rethrow_exception(error);
    if constexpr (!std::is_void_v<T>) return std::move(*value);
  }
};

/// The actors that one spawn() has made, numbered by rank from 0. Copies are the same group; with
/// the last one the actors end. Threads: any.
template <class A>
class ActorGroup {
 public:
  int size() const { return group().size(); }
  const std::string& name() const { return group().name(); }

  /// Sends a message to one of them, and waits for nobody. What goes wrong is in the Future. While
  /// the actor is being restarted the message waits, until its deadline.
  template <class M, class... P>
  requires detail::CanSend<A, M, P...> Future<detail::ResultOf<M>> call(int rank, P&&... arguments)
  const {
    return detail::ask<A, M>(group().executor(), group().road(rank), group().tickets(),
                             sender(rank), std::forward<P>(arguments)...);
  }
  /// The same to each, and waits for the answers of all, in order of their ranks.
  template <class M, class... P>
  requires detail::CanSend<A, M, P...> std::vector<Reply<detail::ResultOf<M>>> gather(
      const P&... arguments)
  const {
    using Result = detail::ResultOf<M>;
    std::vector<Future<Result>> futures;
    for (int rank = 0; rank < size(); ++rank) futures.push_back(call<M>(rank, arguments...));
    std::vector<Reply<Result>> replies(futures.size());
    for (size_t i = 0; i < futures.size(); ++i) {
      replies[i].rank = static_cast<int>(i);
      try {
        if constexpr (std::is_void_v<Result>)
          futures[i].get(), replies[i].value.emplace();
        else
          replies[i].value.emplace(futures[i].get());
      } catch (...) {
        replies[i].error = std::current_exception();
      }
    }
    return replies;
  }
  /// The same to each, and nobody waits for answers: what a handler throws then is the business of
  /// the supervision alone, and what does not arrive is lost.
  template <class M, class... P>
  requires detail::CanSend<A, M, P...>
  void broadcast(const P&... arguments) const {
    for (int rank = 0; rank < size(); ++rank) tell<M>(rank, arguments...);
  }
  /// To one, without an answer.
  template <class M, class... P>
  requires detail::CanSend<A, M, P...>
  void tell(int rank, P&&... arguments) const {
    detail::tell<A, M>(group().executor(), group().tickets(), sender(rank),
                       std::forward<P>(arguments)...);
  }

  /// For other workers, in its present life.
  ActorId<A> id(int rank) const {
    auto [worker, number] = group().where(rank);
    return {std::move(worker), number};
  }
  /// The worker that it is on.
  std::string worker(int rank) const { return group().where(rank).first; }
  /// The story of the failures of an actor that has ended by them; empty: it has not.
  std::string failure(int rank) const { return group().failure(rank); }
  /// The same group with another deadline for each call.
  ActorGroup with(Duration deadline) const {
    ActorGroup other = *this;
    other.deadline_ = deadline;
    return other;
  }
  /// The actors end: their handlers are told to stop, what waits for them is lost, and later calls
  /// fail with Aborted. Any further end() does nothing.
  void end() const { group().end(); }

 private:
  friend class Worker;
  ActorGroup(std::shared_ptr<detail::GroupOwner> owner)
      : owner_(std::move(owner)), deadline_(group().deadline()) {}
  detail::Group& group() const { return *owner_->group; }
  auto sender(int rank) const {
    return [this, rank](detail::Outgoing message, uint64_t ticket) {
      group().send(rank, std::move(message), ticket,
                   deadline_ == Duration::max() ? Deadline::never() : Deadline::after(deadline_));
    };
  }

  std::shared_ptr<detail::GroupOwner> owner_;
  Duration deadline_;
};

template <class A, class... P>
ActorGroup<A> Worker::spawn(const SpawnOptions& options, P&&... arguments) const {
  static_assert(
      detail::can_be_parameters(static_cast<typename detail::ActorSpec<A>::Parameters*>(nullptr)),
      "a parameter of this actor's constructor cannot travel: take values or const& of "
      "types that base/encoding.h knows");
  static_assert(detail::Fits<detail::ConstructorValues<A>, P...>::value,
                "these are no arguments for the constructor that TRIREME_ACTOR names");
  encoding::Writer writer;
  writer.copy_shared();  // they are kept for restarts
  detail::put_all(static_cast<detail::ConstructorValues<A>*>(nullptr), writer,
                  std::forward<P>(arguments)...);
  auto owner = std::make_shared<detail::GroupOwner>(
      std::make_shared<detail::Group>(*this, detail::actor_type<A>(), options, std::move(writer)));
  owner->group->start();
  return ActorGroup<A>(std::move(owner));
}

template <class A, std::same_as<std::vector<std::string>> Names, class... P>
ActorGroup<A> Worker::spawn(const Names& workers, P&&... arguments) const {
  return spawn<A>(SpawnOptions{.workers = workers}, std::forward<P>(arguments)...);
}

}  // namespace trireme::rpc
