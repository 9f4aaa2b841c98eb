// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "trireme/base/clock.h"
#include "trireme/base/export.h"

namespace trireme::net {

/// What the kernel knows of a TCP connection's other end. While nothing is on its way, keepalive
/// finds out that a host is gone; while something is, TCP would try for a quarter of an hour, and
/// this asks instead.
enum class Link {
  quiet,  // nothing on its way, or no TCP connection
  busy,   // something is not acknowledged yet, or waits for room at the other end
  cut,    // on its way for long, tried again, and not a word from the other end's kernel
};
TRIREME_API Link link_of(int fd);

/// Whoever has something on its way asks this often: then a cut is known within 4 s.
inline constexpr Duration kLinkCheckEvery = std::chrono::milliseconds(500);

}  // namespace trireme::net
