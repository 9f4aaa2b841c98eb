// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/base/export.h"
#include "trireme/net/socket.h"

// Open files handed to another process over a Unix socket (SCM_RIGHTS).
namespace trireme::net {

inline constexpr size_t kMostFdsAtOnce = 253;  // SCM_MAX_FD

/// `payload` travels in the same message and has at least one byte.
TRIREME_API void send_fds(Socket& socket, std::span<const int> fds, std::string_view payload,
                          Deadline deadline);

struct ReceivedFds {
  std::vector<UniqueFd> fds;  // closed on exec
  std::string payload;
};
/// Exactly `payload_bytes` bytes (as many as the sender gave) and at most `most` descriptors; more
/// of them is Corrupt, and all are closed. ResourceError when this process could not take one
/// (limit of open files).
TRIREME_API ReceivedFds recv_fds(Socket& socket, size_t most, size_t payload_bytes,
                                 Deadline deadline);

}  // namespace trireme::net
