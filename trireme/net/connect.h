// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "trireme/base/export.h"
#include "trireme/net/endpoint.h"
#include "trireme/net/socket.h"

namespace trireme::net {

/// Waits between attempts: 5 ms, growing to half a second unless told otherwise, each ±25 % so that
/// many ranks do not knock in step.
class TRIREME_API BackOff {
 public:
  explicit BackOff(Duration first = std::chrono::milliseconds(5),
                   Duration longest = std::chrono::milliseconds(500));
  /// Sleeps, at most until the deadline; false when it has passed.
  bool pause(Deadline deadline);

 private:
  double next_ms_;
  double longest_ms_;
  uint64_t state_;
};

/// One attempt at every address of the endpoint; nullopt and `*why` when nobody answers. Throws
/// only where a later attempt cannot help (out of descriptors). `refused`: every address is of a
/// host that answers, and nobody listens there.
TRIREME_API std::optional<Socket> try_connect(const Endpoint& to, Deadline deadline,
                                              std::string* why, bool* refused = nullptr);

/// Called after each failed attempt with its reason; for logs and tests.
using OnRetry = std::function<void(const std::string& why)>;

/// Knocks until somebody answers: the server may start later than we do, and so may its name.
/// Timeout naming the endpoint and the last reason; one warning after five seconds, so that a
/// misspelt name is noticed before that.
TRIREME_API Socket connect(const Endpoint& to, Deadline deadline, const OnRetry& on_retry = {});

}  // namespace trireme::net
