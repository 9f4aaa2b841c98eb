// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <memory>
#include <source_location>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>

#include "trireme/rpc/object/ledger.h"
#include "trireme/rpc/remote.h"

// Classes whose objects other workers may make:
//
//   struct Table {
//     Table(int64_t rows, int64_t dim);
//     at::Tensor pull(const std::vector<int64_t>& ids) const;
//   };
//   TRIREME_REMOTE_CLASS(Table, int64_t, int64_t);  // its constructor's parameters
//   TRIREME_REMOTE(pull, &Table::pull);
//   rpc::init({.name = "server0", .offers = {rpc::offer_objects<Table, pull>()}, …});
//
// What is made of such a class, and of functions whose results stay where they are, is called
// through an RRef (rpc/object/rref.h).
namespace trireme::rpc {

/// Names a class, in its namespace, and the types of a constructor's parameters: values that
/// base/encoding.h knows, or const& of them. The name is one in all programs of a job. Naming it
/// lets nobody make one: a worker offers those that it wants to have (offer_objects).
#define TRIREME_REMOTE_CLASS(Class, ...)                                              \
  struct trireme_remote_##Class {                                                     \
    static constexpr const char* kName = #Class;                                      \
    using Parameters = ::trireme::rpc::detail::ParametersOf<void(__VA_ARGS__)>::Type; \
  };                                                                                  \
  inline trireme_remote_##Class trireme_remote_class(const Class*) { return {}; }     \
  static_assert(true, "a semicolon follows")

template <class T>
class RRef;

namespace detail {

template <class F>
struct ParametersOf;
template <class... P>
struct ParametersOf<void(P...)> {
  using Type = std::tuple<P...>;
};

template <class X>
concept RemoteClass = requires(const X* x) {
  trireme_remote_class(x);
};
template <class X>
concept RemoteFunction = requires {
  X::kFunction;
};

template <class X>
struct Making;
template <RemoteFunction X>
struct Making<X> {
  using Type = ResultOf<X>;
  using Arguments = ValuesOf<X>;
};
template <RemoteClass X>
struct Making<X> {
  using Type = X;
  using Spec = decltype(trireme_remote_class(static_cast<const X*>(nullptr)));
  using Arguments = typename Values<typename Spec::Parameters>::Type;
};
/// What remote<X>() refers to.
template <class X>
using Made = typename Making<X>::Type;

struct None {};
template <class Tuple>
struct Split {
  using First = None;
};
template <class V, class... Rest>
struct Split<std::tuple<V, Rest...>> {
  using First = V;
  using Others = std::tuple<Rest...>;
};
template <class X>
using FirstOf = typename Split<typename Making<X>::Arguments>::First;

template <class X, class... A>
concept CanMake = !std::is_void_v<Made<X>> &&
                  Fits<typename Split<typename Making<X>::Arguments>::Others, A...>::value;
template <class X>
concept CanMakeOfNothing =
    !std::is_void_v<Made<X>> && std::tuple_size_v<typename Making<X>::Arguments> == 0;

/// A first argument, and where in the program it is one.
template <class V>
struct Located {
  template <class U>
  requires(std::is_convertible_v<U, V> && !std::same_as<std::remove_cvref_t<U>, Located>)
      Located(U&& argument, std::source_location from = std::source_location::current())
      : value(std::forward<U>(argument)), where(from) {}
  V value;
  std::source_location where;
};

/// What an RRef<T> refers to, as both ends say it.
template <class T>
const std::string& kind_of() {
  static const std::string kind = [] {
    if constexpr (RemoteClass<T>)
      return std::string(Making<T>::Spec::kName);
    else
      return encoding::type_text<T>();
  }();
  return kind;
}

template <class C>
const std::string& maker_method() {
  static const std::string name = "new " + kind_of<C>();
  return name;
}
template <class C, class M>
const std::string& object_method() {
  static const std::string name = kind_of<C>() + "::" + M::kName;
  return name;
}

template <class... V>
std::string with_head(const char* head, std::tuple<V...>*) {
  return std::string("void(") + head + encoding::type_text<std::tuple<V...>>() + ")";
}
template <class C>
const std::string& maker_signature() {
  static const std::string text =
      with_head("object ", static_cast<typename Making<C>::Arguments*>(nullptr));
  return text;
}
template <class M>
const std::string& object_signature() {
  static const std::string text = signature_of<M>() + " of an object";
  return text;
}

/// For the two below, which know bytes: rpc/object/objects.cc.
TRIREME_API Method method_that_makes(const std::string& name, const std::string& signature,
                                     const std::string& kind, MakeObject make);
TRIREME_API Method method_on_objects(const std::string& name, const std::string& signature,
                                     const std::string& kind, RunOnObject run);

template <class C>
std::shared_ptr<void> made_from(encoding::Reader reader) {
  typename Making<C>::Arguments arguments;
  std::apply([&](auto&... value) { (reader.get(value), ...); }, arguments);
  if (!reader.done()) encoding::left_over();
  return std::apply(
      [](auto&... value) -> std::shared_ptr<void> {
        return std::make_shared<C>(std::move(value)...);
      },
      arguments);
}

}  // namespace detail

/// Other workers may make objects of class C at this worker, and call these member functions of
/// them (and of its bases): a part of rpc::Options. Several may run at once on one object, so that
/// what they share needs a lock. An object lives until nobody has an RRef to it.
template <detail::RemoteClass C, class... M>
requires(std::derived_from<C, detail::ObjectOf<M>>&&...) Offer offer_objects() {
  static_assert(detail::can_be_parameters(
                    static_cast<typename detail::Making<C>::Spec::Parameters*>(nullptr)),
                "a parameter of this class's constructor cannot travel: take values or const& of "
                "types that base/encoding.h knows");
  return {{detail::method_that_makes(detail::maker_method<C>(), detail::maker_signature<C>(),
                                     detail::kind_of<C>(), &detail::made_from<C>),
           detail::method_on_objects(
               detail::object_method<C, M>(), detail::object_signature<M>(), detail::kind_of<C>(),
               [](const std::shared_ptr<void>& object,
                  const std::shared_ptr<detail::Answering>& call, encoding::Reader arguments) {
                 detail::run_with<M>(
                     static_cast<detail::ObjectOf<M>*>(static_cast<C*>(object.get())), call,
                     std::move(arguments), object);
               })...}};
}

}  // namespace trireme::rpc
