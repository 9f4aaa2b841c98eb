// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <source_location>
#include <string>
#include <utility>

#include "trireme/rpc/object/messages.h"
#include "trireme/rpc/object/objects.h"
#include "trireme/rpc/object/remote_class.h"
#include "trireme/rpc/rpc.h"

// References to objects of other workers:
//
//   rpc::RRef<Table> t = server.remote<Table>(rows, dim);  // made there; usable at once
//   rpc::Future<at::Tensor> got = t.async<pull>(ids);      // once it is made
//   rpc::RRef<double> loss = server.remote<evaluate>(batch);  // what a function returns stays
//   there double here = loss.to_here();
//
// An RRef is a value of remote calls: an argument or a result, or in a struct or a vector of one,
// to any worker. Its object lives until no worker has an RRef to it: those of a worker that is
// gone, or whose session with the owner has ended, do not count.
namespace trireme::rpc {

/// Copies refer to the same object. What comes with a call may be used at once, too. Errors: a
/// constructor's, at each use; PeerLost, once the owner is gone. A worker that comes back under the
/// owner's name does not have the object. Destroy RRefs before their worker's shutdown(), which
/// tells of those that there are. Threads: any.
template <class T>
class RRef {
 public:
  RRef() = default;

  bool valid() const { return reference_ != nullptr; }
  /// The name of the worker that has the object.
  const std::string& owner() const { return reference().owner(); }
  /// It is this worker's.
  bool is_owner() const { return reference().at()->owns(reference()); }
  /// The owner has made the object, as far as this worker has heard, and counts this worker.
  bool confirmed() const { return reference().at()->confirmed(reference()); }

  /// Calls a member function of the object, one that its worker offers. What goes wrong is in the
  /// Future. Calls that are made before the object is there wait, in order.
  template <class M, class... A>
  requires(detail::RemoteClass<T>&& std::derived_from<T, detail::ObjectOf<M>>&& CanCall<M, A...>)
      Future<detail::ResultOf<M>> async(A&&... arguments)
  const {
    return send<detail::ResultOf<M>>(
        detail::object_method<T, M>().c_str(), detail::object_signature<M>(),
        [values = detail::ValuesOf<M>(std::forward<A>(arguments)...)](encoding::Writer& writer) {
          std::apply([&](const auto&... value) { (writer.put(value), ...); }, values);
        });
  }
  /// async() and get().
  template <class M, class... A>
  requires(detail::RemoteClass<T>&& std::derived_from<T, detail::ObjectOf<M>>&& CanCall<M, A...>)
      detail::ResultOf<M> sync(A&&... arguments)
  const { return async<M>(std::forward<A>(arguments)...).get(); }

  /// A copy of a value that stays at its worker. Of a class, call methods.
  Future<T> fetch() const requires(!detail::RemoteClass<T>) {
    return send<T>(detail::kFetch, detail::raw_signature(),
                   [](encoding::Writer& writer) { writer.put(detail::kind_of<T>()); });
  }
  T to_here() const requires(!detail::RemoteClass<T>) { return fetch().get(); }

  /// The object itself, at its owner; waits until it is made. UsageError: it is another worker's.
  std::shared_ptr<T> local_value() const {
    check<UsageError>(is_owner(),
                      "the {} is worker '{}' 's, and local_value() is for the owner alone: "
                      "call its methods, or to_here()",
                      reference().kind(), owner());
    auto state =
        std::make_shared<detail::FutureState<std::shared_ptr<void>>>(reference().at()->executor());
    reference().at()->local(reference(), deadline_of_call(), state);
    return std::static_pointer_cast<T>(Future<std::shared_ptr<void>>(std::move(state)).get());
  }

  /// The same with another deadline for each call.
  RRef with(Duration deadline) const {
    RRef other = *this;
    other.deadline_ = deadline;
    return other;
  }

 private:
  friend class Peer;
  friend struct encoding::Custom<RRef>;
  template <class U>
  friend RRef<U> own(const Worker&, std::shared_ptr<U>, std::source_location);
  RRef(std::shared_ptr<detail::Reference> reference, Duration deadline)
      : reference_(std::move(reference)), deadline_(deadline) {}

  const detail::Reference& reference() const {
    check<UsageError>(valid(), "this RRef refers to nothing: it is empty");
    return *reference_;
  }
  Deadline deadline_of_call() const {
    return deadline_ == Duration::max() ? Deadline::never() : Deadline::after(deadline_);
  }

  template <class R, class Put>
  Future<R> send(const char* method, const std::string& signature, Put put) const {
    const auto at = reference().at();
    auto state = std::make_shared<detail::FutureState<R>>(at->executor());
    const Deadline deadline = deadline_of_call();
    at->when_usable(
        reference_, deadline, state,
        [state, method, &signature, deadline, reference = reference_,
         put = std::make_shared<Put>(std::move(put))](const std::shared_ptr<detail::Line>& line) {
          detail::Outgoing outgoing;
          outgoing.method = method;
          outgoing.signature = &signature;
          outgoing.future = state;
          if (const auto& context = detail::current_context())
            outgoing.crossing = context->leaving(line);
          detail::CallTransit transit(line, outgoing.crossing);
          outgoing.arguments.set_transit(&transit);
          outgoing.arguments.put(reference->object());
          (*put)(outgoing.arguments);
          outgoing.arguments.set_transit(nullptr);
          outgoing.passage = std::move(transit.passage);
          // The object lives until its call has ended.
          outgoing.fill = [state, reference](encoding::Reader& reader) {
            detail::Stored<R> value{};
            if constexpr (!std::is_void_v<R>) reader.get(value);
            if (!reader.done()) encoding::left_over();
            state->set(std::move(value));
          };
          line->call(std::move(outgoing), deadline);
        });
    return Future<R>(std::move(state));
  }

  std::shared_ptr<detail::Reference> reference_;
  Duration deadline_ = std::chrono::seconds(60);
};

/// An RRef to what this worker has already.
template <class T>
RRef<T> own(const Worker& me, std::shared_ptr<T> value,
            std::source_location where = std::source_location::current()) {
  check<UsageError>(value != nullptr, "rpc::own: there is no object");
  std::function<void(encoding::Writer&)> put;
  if constexpr (!detail::RemoteClass<T>)
    put = [value](encoding::Writer& writer) { writer.put(*value); };
  return RRef<T>(
      detail::Access::objects(me)->own(value, detail::kind_of<T>(), std::move(put),
                                       detail::call_site(where.file_name(), where.line())),
      detail::Access::deadline(me));
}

namespace detail {

/// `put` writes the arguments.
template <class X, class Put>
std::shared_ptr<Reference> make_remote(const std::shared_ptr<Line>& line, Deadline deadline,
                                       const std::source_location& where, Put put) {
  const auto objects = line->objects();
  const std::string site = call_site(where.file_name(), where.line());
  auto reference = objects->begin(line, kind_of<Made<X>>(), site);
  Outgoing outgoing;
  auto state = std::make_shared<FutureState<void>>(objects->executor());
  state->comes_by(line->road());
  outgoing.future = state;
  try {
    if (const auto& context = current_context()) outgoing.crossing = context->leaving(line);
    CallTransit transit(line, outgoing.crossing);
    auto& writer = outgoing.arguments;
    writer.set_transit(&transit);
    writer.put(MakerHead{reference->object(), objects->life_of(*reference), site});
    if constexpr (RemoteClass<X>) {
      outgoing.method = maker_method<X>().c_str();
      outgoing.signature = &maker_signature<X>();
    } else {
      outgoing.method = kMakeByFunction;
      outgoing.signature = &raw_signature();
      writer.put(std::string(X::kName));
      writer.put(signature_of<X>());
    }
    put(writer);
    writer.set_transit(nullptr);
    outgoing.passage = std::move(transit.passage);
  } catch (...) {
    objects->made(reference, std::current_exception());
    return reference;
  }
  outgoing.fill = [state](encoding::Reader& reader) {
    if (!reader.done()) encoding::left_over();
    state->set({});
  };
  Future<void>(state).consume([objects, reference](FutureState<void>& ended) {
    objects->made(reference, ended.failed() ? ended.take_error() : nullptr);
  });
  line->call(std::move(outgoing), deadline);
  return reference;
}

}  // namespace detail

template <class X, class... A>
requires detail::CanMake<X, A...> RRef<detail::Made<X>> Peer::remote(
    detail::Located<detail::FirstOf<X>> first, A&&... arguments)
const {
  using Others = typename detail::Split<typename detail::Making<X>::Arguments>::Others;
  return RRef<detail::Made<X>>(detail::make_remote<X>(line_, deadline_of_call(), first.where,
                                                      [&](encoding::Writer& writer) {
                                                        writer.put(first.value);
                                                        detail::put_all(
                                                            static_cast<Others*>(nullptr), writer,
                                                            std::forward<A>(arguments)...);
                                                      }),
                               deadline_);
}

template <class X>
requires detail::CanMakeOfNothing<X> RRef<detail::Made<X>> Peer::remote(std::source_location where)
const {
  return RRef<detail::Made<X>>(
      detail::make_remote<X>(line_, deadline_of_call(), where, [](encoding::Writer&) {}),
      deadline_);
}

}  // namespace trireme::rpc

namespace trireme::encoding {

template <class T>
struct Custom<rpc::RRef<T>> {
  static std::string type() { return "rref(" + rpc::detail::kind_of<T>() + ")"; }
  static void put(Writer& writer, const rpc::RRef<T>& rref) {
    rpc::detail::Objects::put(writer, rref.reference_);
  }
  static void get(Reader& reader, rpc::RRef<T>& rref) {
    rref = {};
    if (auto reference = rpc::detail::Objects::get(reader, rpc::detail::kind_of<T>())) {
      const Duration deadline = reference->at()->deadline();
      rref = rpc::RRef<T>(std::move(reference), deadline);
    }
  }
};

}  // namespace trireme::encoding
