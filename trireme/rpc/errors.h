// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <utility>

#include "trireme/base/error.h"
#include "trireme/base/export.h"

// What a remote call may throw beside our other errors, which keep their class on their way.
namespace trireme::rpc {

/// Whether the handler of a call was called. `unknown` calls for care with what must not happen
/// twice.
enum class Began { no, yes, unknown };

/// The worker that was called is gone, leaves, or cannot be reached any more.
class TRIREME_API CallLost : public PeerLost {
 public:
  CallLost(const std::string& what, Began began, ErrorContext context = {})
      : PeerLost(what, std::move(context)), began_(began) {}
  ~CallLost() override;
  Began began() const { return began_; }

 private:
  Began began_;
};

/// The handler threw something that is no error of ours.
class TRIREME_API RemoteError : public Error {
 public:
  /// `text`: what it said; `what()` also says which type and where.
  RemoteError(std::string type, std::string text, std::string worker);
  ~RemoteError() override;
  const std::string& type() const { return type_; }  // "std::out_of_range"
  const std::string& text() const { return text_; }
  const std::string& worker() const { return worker_; }
  const char* kind() const override { return "RemoteError"; }

 private:
  std::string type_, text_, worker_;
};

}  // namespace trireme::rpc
