// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <exception>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "trireme/base/encoding.h"
#include "trireme/rpc/call.h"
#include "trireme/rpc/future.h"
#include "trireme/rpc/method.h"

// TRIREME_REMOTE(evaluate, &Table::pull);
//
// names a function that other workers may call, as a type: server.async<evaluate>(batch). It is a
// free function, a member function or a lambda without captures. Its parameters and its result are
// of types that base/encoding.h knows, tensors among them (rpc/codec/tensor.h), by value or const&;
// the first one may be rpc::Call&, which is not sent. It may return a Future.
//
// The name is what workers compare, with the types of parameters and result, so it is one name in
// all programs of a job; inside of a class with a member of that name it is `struct evaluate`.
// Naming a function lets nobody call it: a worker offers those that it wants to answer (offer()
// below), and on which object.
#define TRIREME_REMOTE(name, ...)                                                               \
  struct name {                                                                                 \
    static constexpr const char* kName = #name;                                                 \
    static constexpr auto kFunction = __VA_ARGS__;                                              \
    static_assert(::trireme::rpc::detail::check_function<std::decay_t<decltype(kFunction)>>()); \
  }

namespace trireme::rpc {
namespace detail {

template <class Owner, class R, class... P>
struct Shape {
  using Object = Owner;  // void: a free function
  using Returned = R;
  static constexpr bool kTakesCall = false;
  using Parameters = std::tuple<P...>;
};
template <class Owner, class R, class... P>
struct Shape<Owner, R, Call&, P...> {
  using Object = Owner;
  using Returned = R;
  static constexpr bool kTakesCall = true;
  using Parameters = std::tuple<P...>;
};

template <class F>
struct ShapeOf : ShapeOf<decltype(&F::operator())> {
  using Object = void;  // a lambda's own
};
template <class R, class... P>
struct ShapeOf<R (*)(P...)> : Shape<void, R, P...> {};
template <class R, class... P>
struct ShapeOf<R (*)(P...) noexcept> : Shape<void, R, P...> {};
template <class C, class R, class... P>
struct ShapeOf<R (C::*)(P...)> : Shape<C, R, P...> {};
template <class C, class R, class... P>
struct ShapeOf<R (C::*)(P...) const> : Shape<C, R, P...> {};
template <class C, class R, class... P>
struct ShapeOf<R (C::*)(P...) noexcept> : Shape<C, R, P...> {};
template <class C, class R, class... P>
struct ShapeOf<R (C::*)(P...) const noexcept> : Shape<C, R, P...> {};

/// A parameter that can be filled from bytes: by value, const& or &&.
template <class P>
consteval bool can_be_parameter() {
  using V = std::remove_cvref_t<P>;
  if constexpr (std::is_lvalue_reference_v<P> && !std::is_const_v<std::remove_reference_t<P>>)
    return false;
  else
    return std::is_default_constructible_v<V> && encoding::can_encode<V>();
}
template <class... P>
consteval bool can_be_parameters(std::tuple<P...>*) {
  return (can_be_parameter<P>() && ...);
}

template <class F>
consteval bool check_function() {
  using S = ShapeOf<F>;
  using Value = typename Unwrapped<std::remove_cvref_t<typename S::Returned>>::Type;
  static_assert(can_be_parameters(static_cast<typename S::Parameters*>(nullptr)),
                "a parameter of this function cannot travel: take values or const& of types that "
                "base/encoding.h knows (tensors: include trireme/rpc/codec/tensor.h first), and "
                "rpc::Call& as the first one only");
  static_assert(std::is_void_v<Value> ||
                    (std::is_default_constructible_v<Value> && encoding::can_encode<Value>()),
                "the result of this function cannot travel: return a type that base/encoding.h "
                "knows, or a Future of one");
  return true;
}

template <class M>
using ShapeOfRemote = ShapeOf<std::decay_t<decltype(M::kFunction)>>;
template <class M>
using ObjectOf = typename ShapeOfRemote<M>::Object;
/// What a call of it comes to.
template <class M>
using ResultOf = typename Unwrapped<std::remove_cvref_t<typename ShapeOfRemote<M>::Returned>>::Type;

template <class Tuple>
struct Values;
template <class... P>
struct Values<std::tuple<P...>> {
  using Type = std::tuple<std::remove_cvref_t<P>...>;
};
template <class M>
using ValuesOf = typename Values<typename ShapeOfRemote<M>::Parameters>::Type;

template <class Tuple, class... A>
struct Fits : std::false_type {};
template <class... V, class... A>
requires(sizeof...(V) == sizeof...(A)) struct Fits<std::tuple<V...>, A...>
    : std::bool_constant<(std::is_convertible_v<A, V> && ...)> {
};

/// "f64(tensor,[i64])".
template <class M>
const std::string& signature_of() {
  static const std::string text = [] {
    std::string result = "void";
    if constexpr (!std::is_void_v<ResultOf<M>>) result = encoding::type_text<ResultOf<M>>();
    // A tuple's text is its members' in brackets.
    return result + encoding::type_text<ValuesOf<M>>();
  }();
  return text;
}

template <class V, class A>
void put_as(encoding::Writer& writer, A&& argument) {
  if constexpr (std::is_same_v<std::remove_cvref_t<A>, V>)
    writer.put(argument);
  else
    writer.put<V>(std::forward<A>(argument));
}
template <class... V, class... A>
void put_all(std::tuple<V...>*, encoding::Writer& writer, A&&... arguments) {
  (put_as<V>(writer, std::forward<A>(arguments)), ...);
}

template <class M, class Object>
decltype(auto) invoke(Object* object, Answering& call, ValuesOf<M>& values) {
  return std::apply(
      [&](auto&... value) -> decltype(auto) {
        const auto apply = [&](auto&&... first) -> decltype(auto) {
          return [&]<class... P>(std::tuple<P...>*) -> decltype(auto) {
            if constexpr (std::is_void_v<ObjectOf<M>>)
              return M::kFunction(
                  std::forward<decltype(first)>(first)...,
                  static_cast<std::conditional_t<std::is_lvalue_reference_v<P>, P,
                                                 std::remove_reference_t<P>&&>>(value)...);
            else
              return (object->*M::kFunction)(
                  std::forward<decltype(first)>(first)...,
                  static_cast<std::conditional_t<std::is_lvalue_reference_v<P>, P,
                                                 std::remove_reference_t<P>&&>>(value)...);
          }(static_cast<typename ShapeOfRemote<M>::Parameters*>(nullptr));
        };
        if constexpr (ShapeOfRemote<M>::kTakesCall)
          return apply(static_cast<Call&>(call));
        else
          return apply();
      },
      values);
}

template <class T>
void answer(Answering& call, const T& value) {
  encoding::Writer writer = call.result();
  writer.copy_shared();  // the handler's own may change before it has left
  writer.put(value);
  call.reply(std::move(writer));
}

template <class T>
void answer_from(Answering& call, FutureState<T>& state) {
  try {
    if constexpr (std::is_void_v<T>) {
      state.take();
      call.reply(call.result());
    } else {
      answer(call, state.take());
    }
  } catch (...) {
    call.fail(std::current_exception());
  }
}

/// When the caller no longer waits, neither does the handler.
template <class T>
class CancelWithCall {
 public:
  CancelWithCall(const Call& call, const std::shared_ptr<FutureState<T>>& state)
      : callback_(call.stop_token(), Cancel{state}) {}

 private:
  struct Cancel {
    std::weak_ptr<FutureState<T>> state;
    void operator()() const {
      if (auto waited_for = state.lock()) waited_for->cancel();
    }
  };
  std::stop_callback<Cancel> callback_;
};

template <class Values>
void read_arguments(encoding::Reader& reader, Values& values) {
  std::apply([&](auto&... value) { (reader.get(value), ...); }, values);
  if (!reader.done()) encoding::left_over();
}

/// `kept` lives until the handler has answered.
template <class M, class Object>
void run_with(Object* object, const std::shared_ptr<Answering>& call, encoding::Reader reader,
              const std::shared_ptr<void>& kept) {
  using Returned = typename ShapeOfRemote<M>::Returned;
  using Result = ResultOf<M>;
  try {
    if constexpr (!std::is_same_v<std::remove_cvref_t<Returned>, Result>) {
      // Its arguments live until the answer: a coroutine refers to them.
      auto values = std::make_shared<ValuesOf<M>>();
      read_arguments(reader, *values);
      auto canceller = std::make_shared<std::unique_ptr<CancelWithCall<Result>>>();
      Future<Result> future = invoke<M>(object, *call, *values);
      auto state = future.consume([call, values, canceller, kept](FutureState<Result>& state) {
        answer_from(*call, state);
      });
      if (!state->done()) *canceller = std::make_unique<CancelWithCall<Result>>(*call, state);
    } else {
      ValuesOf<M> values;
      read_arguments(reader, values);
      if constexpr (std::is_void_v<Result>) {
        invoke<M>(object, *call, values);
        call->reply(call->result());
      } else {
        // A value of its own, whatever the handler returns a reference to: what it holds is shared
        // then.
        const Result result = invoke<M>(object, *call, values);
        answer(*call, result);
      }
    }
  } catch (...) {
    call->fail(std::current_exception());
  }
}

template <class M, class Object>
void run_handler(Object* object, const std::shared_ptr<Answering>& call) {
  std::optional<encoding::Reader> reader;
  try {
    reader = call->arguments();
  } catch (...) {
    return call->fail(std::current_exception());
  }
  run_with<M>(object, call, std::move(*reader), nullptr);
}

template <class T>
void keep_in(Keeper& keeper, T value) {
  auto kept = std::make_shared<const T>(std::move(value));
  keeper.keep(std::const_pointer_cast<T>(kept), encoding::type_text<T>(),
              [kept](encoding::Writer& writer) { writer.put(*kept); });
}

template <class M, class Object>
void run_and_keep(Object* object, const std::shared_ptr<Answering>& call, encoding::Reader reader,
                  const std::shared_ptr<Keeper>& keeper) {
  using Returned = typename ShapeOfRemote<M>::Returned;
  using Result = ResultOf<M>;
  try {
    auto values = std::make_shared<ValuesOf<M>>();
    read_arguments(reader, *values);
    if constexpr (!std::is_same_v<std::remove_cvref_t<Returned>, Result>) {
      Future<Result> future = invoke<M>(object, *call, *values);
      future.consume([call, values, keeper](FutureState<Result>& state) {
        try {
          keep_in<Result>(*keeper, state.take());
        } catch (...) {
          keeper->fail(std::current_exception());
        }
      });
    } else {
      keep_in<Result>(*keeper, invoke<M>(object, *call, *values));
    }
  } catch (...) {
    keeper->fail(std::current_exception());
  }
}

/// M as a method of its worker, called on what `object` points to.
template <class M, class Object>
Method method_of(Object object) {
  const auto at = [object] {
    if constexpr (std::is_void_v<ObjectOf<M>>)
      return static_cast<void*>(nullptr);
    else
      return static_cast<ObjectOf<M>*>(object.get());
  };
  Method method{M::kName, signature_of<M>(),
                [at](const std::shared_ptr<Answering>& call) { run_handler<M>(at(), call); }};
  if constexpr (!std::is_void_v<ResultOf<M>>)
    method.run_and_keep = [at](const std::shared_ptr<Answering>& call, encoding::Reader reader,
                               const std::shared_ptr<Keeper>& keeper) {
      run_and_keep<M>(at(), call, std::move(reader), keeper);
    };
  return method;
}

}  // namespace detail

/// What a worker answers: a part of rpc::Options.
struct Offer {
  std::vector<detail::Method> methods;
  /// Sees what comes and leaves within contexts; at most one of a worker's offers has one.
  std::shared_ptr<detail::Carrier> carrier = {};
  /// These hear of workers that are gone.
  std::vector<std::shared_ptr<detail::LineWatcher>> watchers = {};
};

/// Free functions and lambdas: offer<ping, sum>().
template <class... M>
requires(std::is_void_v<detail::ObjectOf<M>>&&...) Offer offer() {
  return {{detail::method_of<M>(std::shared_ptr<void>())...}};
}

/// Member functions, on this object: offer<pull, push>(table). Several may run at once, on
/// different threads. The worker keeps the object until it has shut down.
template <class... M, class Object>
requires(std::is_convertible_v<Object*, detail::ObjectOf<M>*>&&...) Offer
    offer(std::shared_ptr<Object> object) {
  return {{detail::method_of<M>(object)...}};
}

/// Whether M may be called with arguments of these types: as many, and each converts.
template <class M, class... A>
concept CanCall = detail::Fits<detail::ValuesOf<M>, A...>::value;

}  // namespace trireme::rpc
