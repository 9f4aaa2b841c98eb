// SPDX-License-Identifier: Apache-2.0
#include "trireme/rpc/agent/failures.h"

#include <cxxabi.h>
#include <fmt/format.h>

#include <cstdlib>
#include <typeinfo>

#include "trireme/base/error.h"
#include "trireme/rpc/errors.h"

namespace trireme::rpc {

CallLost::~CallLost() = default;
RemoteError::~RemoteError() = default;

RemoteError::RemoteError(std::string type, std::string text, std::string worker)
    : Error(fmt::format("a handler on worker '{}' threw {}{}{}", worker, type,
                        text.empty() ? "" : ": ", text)),
      type_(std::move(type)),
      text_(std::move(text)),
      worker_(std::move(worker)) {}

namespace detail {
namespace {

std::string name_of(const std::type_info* type) {
  if (!type) return "something that has no type";
  int status = 0;
  char* plain = abi::__cxa_demangle(type->name(), nullptr, nullptr, &status);
  std::string name = status == 0 && plain ? plain : type->name();
  std::free(plain);
  return name;
}

template <class E>
std::exception_ptr made(const std::string& text, const ErrorContext& context) {
  return std::make_exception_ptr(E(text, context));
}

}  // namespace

std::string text_of(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& thrown) {
    return brief(thrown);
  } catch (...) {
    return "something that is no std::exception";
  }
}

wire::Failure described(const std::exception_ptr& error, const std::string& worker) {
  wire::Failure failure;
  failure.began = true;
  failure.worker = worker;
  try {
    std::rethrow_exception(error);
  } catch (const RemoteError& remote) {  // of a call that the handler made
    failure.type = remote.type();
    failure.text = remote.text();
    failure.worker = remote.worker();
  } catch (const Error& ours) {
    failure.kind = ours.kind();
    failure.text = brief(ours);
    failure.rank = ours.rank();
    failure.peer = ours.peer();
    failure.op = ours.op();
    failure.seq = ours.seq();
  } catch (const std::exception& other) {
    failure.type = name_of(&typeid(other));
    failure.text = brief(other);
  } catch (...) {
    failure.type = name_of(abi::__cxa_current_exception_type());
  }
  return failure;
}

std::exception_ptr rebuilt(const wire::Failure& failure, const std::string& method) {
  if (failure.kind.empty())
    return std::make_exception_ptr(RemoteError(failure.type, failure.text, failure.worker));
  const ErrorContext context{failure.rank, failure.peer, failure.op, failure.seq};
  const std::string text =
      fmt::format("{} ('{}' on worker '{}')", failure.text, method, failure.worker);
  const std::string& kind = failure.kind;
  if (kind == "UsageError") return made<UsageError>(text, context);
  if (kind == "Mismatch") return made<Mismatch>(text, context);
  if (kind == "PeerLost" && !failure.began)
    return std::make_exception_ptr(CallLost(text, Began::no, context));
  if (kind == "PeerLost") return made<PeerLost>(text, context);
  if (kind == "Timeout") return made<Timeout>(text, context);
  if (kind == "Aborted") return made<Aborted>(text, context);
  if (kind == "ResourceError") return made<ResourceError>(text, context);
  if (kind == "NumericError") return made<NumericError>(text, context);
  if (kind == "Corrupt") return made<Corrupt>(text, context);
  return made<Error>(text, context);
}

}  // namespace detail
}  // namespace trireme::rpc
