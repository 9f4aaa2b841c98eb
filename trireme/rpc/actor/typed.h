// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>

#include "trireme/rpc/actor/group.h"
#include "trireme/rpc/actor/host.h"
#include "trireme/rpc/actor/place.h"
#include "trireme/rpc/remote.h"

// Between actor.h, which a program uses, and the rest of this folder, which knows bytes: what is
// made of an actor's class and its methods.
namespace trireme::rpc {
namespace detail {

template <class F>
struct ActorParameters;
template <class... P>
struct ActorParameters<void(P...)> {
  using Parameters = std::tuple<P...>;
  static constexpr bool kTakesPlace = false;
};
template <class... P>
struct ActorParameters<void(const ActorPlace&, P...)> {
  using Parameters = std::tuple<P...>;
  static constexpr bool kTakesPlace = true;
};

template <class A>
using ActorSpec = decltype(trireme_actor_of(static_cast<const A*>(nullptr)));
template <class A>
using ConstructorValues = typename Values<typename ActorSpec<A>::Parameters>::Type;

template <class A>
const ActorType& actor_type() {
  static const ActorType type = [] {
    const std::string name = ActorSpec<A>::kName;
    return ActorType{name, "actor " + name, "actor " + name + ": is ready",
                     "actor " + name + ": is waited for",
                     "void" + encoding::type_text<ConstructorValues<A>>()};
  }();
  return type;
}

/// "Sim.run"
template <class A, class M>
const std::string& actor_method() {
  static const std::string name = actor_type<A>().name + "." + M::kName;
  return name;
}

/// Constructs objects from the same arguments, which are read as the first one is constructed.
template <class A>
ActorHost::Make make_actors(encoding::Reader arguments) {
  struct Arguments {
    encoding::Reader reader;
    std::optional<ConstructorValues<A>> values;
  };
  auto kept = std::make_shared<Arguments>(Arguments{std::move(arguments), {}});
  return [kept](const ActorPlace& place) -> std::shared_ptr<void> {
    if (!kept->values) {
      ConstructorValues<A> values;
      std::apply([&](auto&... value) { (kept->reader.get(value), ...); }, values);
      if (!kept->reader.done()) encoding::left_over();
      kept->values.emplace(std::move(values));
    }
    return std::apply(
        [&](const auto&... value) -> std::shared_ptr<void> {
          if constexpr (ActorSpec<A>::kTakesPlace)
            return std::make_shared<A>(place, value...);
          else
            return std::make_shared<A>(value...);
        },
        *kept->values);
  };
}

template <class A, class M>
void run_message(void* object, const std::shared_ptr<Message>& message) {
  using Returned = typename ShapeOfRemote<M>::Returned;
  using Result = ResultOf<M>;
  auto* const on = static_cast<ObjectOf<M>*>(static_cast<A*>(object));
  auto values = std::make_shared<ValuesOf<M>>();
  try {
    auto reader = message->arguments();
    std::apply([&](auto&... value) { (reader.get(value), ...); }, *values);
    if (!reader.done()) encoding::left_over();
  } catch (...) {
    message->bad_arguments(std::current_exception());
    return;
  }
  try {
    if constexpr (!std::is_same_v<std::remove_cvref_t<Returned>, Result>) {
      Future<Result> future = invoke<M>(on, *message, *values);
      // The turn is its handler's until the Future is ready, though the caller may give it up.
      auto state = future.consume(
          [message, values](FutureState<Result>& state) { answer_from(*message, state); });
      if (!state->done()) message->parks(state->ticket());
    } else if constexpr (std::is_void_v<Result>) {
      invoke<M>(on, *message, *values);
      message->reply(message->result());
    } else {
      const Result result = invoke<M>(on, *message, *values);
      answer(*message, result);
    }
  } catch (...) {
    message->fail(std::current_exception());
  }
}

template <class A, class M, class... P>
Outgoing outgoing_message(bool answered, P&&... arguments) {
  Outgoing message;
  message.method = actor_method<A, M>().c_str();
  message.signature = &signature_of<M>();
  message.arguments.put(MessageHead{0, 0, answered});
  put_all(static_cast<ValuesOf<M>*>(nullptr), message.arguments, std::forward<P>(arguments)...);
  return message;
}

/// Has `send` send a message, whose answer comes to the Future.
template <class A, class M, class Send, class... P>
Future<ResultOf<M>> ask(const std::shared_ptr<Executor>& executor, int road, Tickets& tickets,
                        const Send& send, P&&... arguments) {
  using Result = ResultOf<M>;
  auto state = std::make_shared<FutureState<Result>>(executor);
  const uint64_t ticket = tickets.next();
  state->comes_by(road);
  state->stems_from(ticket);
  try {
    Outgoing message = outgoing_message<A, M>(true, std::forward<P>(arguments)...);
    message.future = state;
    message.fill = [state](encoding::Reader& reader) {
      Stored<Result> value{};
      if constexpr (!std::is_void_v<Result>) reader.get(value);
      if (!reader.done()) encoding::left_over();
      state->set(std::move(value));
    };
    send(std::move(message), ticket);
  } catch (...) {
    state->fail(std::current_exception());
  }
  return Future<Result>(std::move(state));
}

/// The same without an answer: what goes wrong is the business of the actor's supervision.
template <class A, class M, class Send, class... P>
void tell(const std::shared_ptr<Executor>& executor, Tickets& tickets, const Send& send,
          P&&... arguments) {
  auto state = std::make_shared<FutureState<void>>(executor);
  Outgoing message = outgoing_message<A, M>(false, std::forward<P>(arguments)...);
  message.future = state;
  message.fill = [state](encoding::Reader&) { state->set({}); };
  send(std::move(message), tickets.next());
}

/// The object of M is an A, and it may be called so.
template <class A, class M, class... P>
concept CanSend = std::derived_from<A, ObjectOf<M>> && Fits<ValuesOf<M>, P...>::value;

/// The group ends with the last handle of it.
struct GroupOwner {
  std::shared_ptr<Group> group;
  explicit GroupOwner(std::shared_ptr<Group> owned) : group(std::move(owned)) {}
  ~GroupOwner() { group->end(); }
  GroupOwner(const GroupOwner&) = delete;
};

}  // namespace detail

}  // namespace trireme::rpc
