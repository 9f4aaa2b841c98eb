// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <c10/core/Device.h>
#include <c10/core/Stream.h>

#include "tests/support/pretend_device/queue.h"

namespace trireme::pretend {

/// What is current in this thread. A device without an index is the current one.
c10::Device current_device();
void set_current_device(c10::DeviceIndex index);
c10::Device with_index(c10::Device device);
c10::Stream current_stream(c10::Device device);
/// The device of `stream` has it from here on. Returns the one before.
c10::Stream exchange_current_stream(const c10::Stream& stream);

/// Blocks this thread until a stream has come so far, and counts that. `what` names the call to
/// who forbade it (NoHostWaits).
void host_wait(const Ticket& ticket, const char* what);
/// Throws where host waits are forbidden. To be called before anything is enqueued.
void refuse_host_wait(const char* what);
uint64_t host_waits_of_this_thread();
/// Whether a stream has come so far, without blocking. Where host waits are forbidden, who asks a
/// thousand times and more for what has not come is waiting, too, and it throws.
bool has_come(const Ticket& ticket);

/// In its scope, this thread may not block on a stream, nor ask again and again whether it has come
/// so far: what would throws, naming the call. For gradient hooks.
class NoHostWaits {
 public:
  NoHostWaits();
  ~NoHostWaits();
  NoHostWaits(const NoHostWaits&) = delete;
};

}  // namespace trireme::pretend
