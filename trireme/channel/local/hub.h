// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "trireme/base/export.h"
#include "trireme/channel/channel.h"

namespace trireme::channel {

struct LocalOptions {
  Peer self{};      // who we are; peers of another generation are refused
  Accept accept{};  // called for each peer that opens a channel to us; empty: all are refused
  /// How long serve() looks again and again before it sleeps. More than zero saves the time of a
  /// wake-up on each message, and keeps a CPU busy: only where there is one for each worker.
  Duration spin{0};
  /// Bytes of the windows that one channel may have for what it sends. Bodies that find no room in
  /// them travel through the ring, which copies them once more. 0, or at least 4 MiB.
  uint64_t most_window_bytes = uint64_t{1} << 30;
};

/// A hub for the workers of this host, processes or threads, through shared memory. Nothing of it
/// has a name in a file system, so that nothing is left when a worker is killed.
///
/// A body of 16 KiB and more is copied once, into a window of the sender's, and one that empty()
/// made not at all: its receiver gets the sender's memory, writable, until its last shared_ptr is
/// gone; it stays valid when the channel is closed and when the sender has died. Smaller bodies are
/// the receiver's own. The sender's Body is kept until the receiver has let it go (empty()) or it
/// was copied.
///
/// Long messages (more than kChunk to copy), and those for which a peer has left no room, are sent
/// by the thread in serve(); others leave in send(). While open() waits and no other thread serves,
/// peers who open channels to this hub are let in on its thread, and `accept` is called there.
/// Receivers and `accept` may send and close, and may not open or serve (UsageError). Learning
/// that a process died takes up to 0.1 s, and so does opening a channel to a peer who sleeps where
/// this process may not look at the descriptors of another of its user (a sandbox, hidepid).
///
/// Destroyed while no thread is in a call of it: its channels close, peers learn so, receivers hear
/// nothing more. Channels and bodies may live on. A forked child may use none of it (UsageError).
/// Throws UsageError (options) and ResourceError (no descriptors, no memory, a sandbox).
TRIREME_API std::unique_ptr<Hub> local_hub(LocalOptions options);

}  // namespace trireme::channel
