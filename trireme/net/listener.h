// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>

#include "trireme/base/export.h"
#include "trireme/net/endpoint.h"
#include "trireme/net/socket.h"

namespace trireme::net {

/// A listening socket. TCP binds to the one interface that the address names, never to all unless
/// it says so (0.0.0.0, ::); port 0 takes one that the kernel chooses, and endpoint() tells it.
class TRIREME_API Listener {
 public:
  /// ResourceError naming the address and what to do when it is taken or not of this host.
  explicit Listener(const Endpoint& at);
  /// nullopt when somebody else has the address (EADDRINUSE); other failures throw.
  static std::optional<Listener> if_free(const Endpoint& at);
  /// Loopback, port chosen by the kernel.
  static Listener loopback() { return Listener(Endpoint::tcp({"127.0.0.1", 0})); }

  const Endpoint& endpoint() const { return endpoint_; }
  int fd() const { return fd_.get(); }

  /// Timeout when nobody came.
  Socket accept(Deadline deadline);
  /// nullopt: nobody is waiting. ResourceError when out of descriptors or memory.
  std::optional<Socket> accept_now();
  /// Frees the address; endpoint() still tells it.
  void close() { fd_.reset(); }

 private:
  Listener() = default;
  /// 0, or the errno of bind.
  int open(const Endpoint& at);

  UniqueFd fd_;
  Endpoint endpoint_;
};

}  // namespace trireme::net
