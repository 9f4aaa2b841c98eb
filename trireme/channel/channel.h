// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "trireme/base/clock.h"
#include "trireme/base/export.h"

// Roads for messages between two workers: through shared memory on one host (channel/local), over
// TCP between hosts (channel/tcp). What a message says is its users' business (rpc/).
//
// A worker has one Hub of each kind. The hub accepts channels that peers open and opens ours; it
// has every channel's Receiver called on the thread that is in serve(). No thread is started here:
// whoever waits for an answer may serve, and else a thread of the hub's owner does.
namespace trireme::channel {

/// Memory beside a message's bytes, for what is large. Sent: it is kept, and must not change, until
/// it has been copied or its receiver has let it go. Received: the holder's own, or lent by the
/// sender's shared memory until the last copy of `data` is gone.
struct Body {
  std::shared_ptr<const void> data;
  uint64_t bytes = 0;
};

struct Message {
  std::string bytes;  // at most kMostBytes
  std::vector<Body> bodies;
};

/// The most that a message may be made of; its sender is refused (UsageError), its receiver closes
/// the channel (Corrupt).
inline constexpr uint64_t kMostBytes = uint64_t{16} << 20;
inline constexpr uint64_t kChunk = uint64_t{256} << 10;  // bytes and bodies together
inline constexpr uint64_t kMostBodies = 65536;
inline constexpr uint64_t kMostBodyBytes = uint64_t{1} << 40;

/// Who is at the other end, as the hub has made sure of it.
struct Peer {
  std::string name;         // of the worker
  uint64_t generation = 0;  // of the job
};

class Channel;

/// What its owner does with what comes. The calls for one channel are in order and never at once,
/// on a thread that serves; they neither wait for a peer nor throw.
class Receiver {
 public:
  virtual ~Receiver() = default;
  virtual void received(Message message) = 0;
  /// The last call: the peer has closed the channel or is gone, or the channel broke. `why` is one
  /// sentence without a full stop ("worker 'server0' (pid 4711) is gone").
  virtual void closed(const std::string& why) = 0;
};

/// One end. Any thread may call it.
class TRIREME_API Channel {
 public:
  virtual ~Channel() = default;
  /// Posts the message and waits for nobody. It comes whole and once, or not at all; those of at
  /// most kChunk bytes come in the order in which they were sent, and may overtake longer ones,
  /// which travel in chunks. False: the channel is closed, and the message was not taken.
  virtual bool send(Message message) = 0;
  /// Bytes that were posted and have not left: what back-pressure looks at.
  virtual uint64_t unsent() const = 0;
  /// Memory for a body that travels to this peer without a copy, where the road has such; else
  /// plain memory. Never null.
  virtual std::shared_ptr<void> empty(uint64_t bytes) = 0;
  /// Nothing more is sent or received, and the peer learns so. Receiver::closed() still comes.
  virtual void close(const std::string& why) = 0;
  virtual const Peer& peer() const = 0;
};

/// Given a peer who has shown who he is, its Receiver; null: he is refused.
using Accept = std::function<std::shared_ptr<Receiver>(const std::shared_ptr<Channel>&)>;

class TRIREME_API Hub {
 public:
  virtual ~Hub() = default;
  /// Where peers find it; goes into the job's store.
  virtual std::string address() const = 0;
  /// Opens a channel to the worker at this address. Throws PeerLost, Timeout, Mismatch (another
  /// version or generation), UsageError (another secret). Both ends may open one at once; then
  /// there are two, and each end sends on the one that it opened.
  virtual std::shared_ptr<Channel> open(const std::string& address, const Peer& expected,
                                        std::shared_ptr<Receiver> receiver, Deadline deadline) = 0;
  /// Takes what has come and calls receivers, on this thread; with nothing there it waits until the
  /// deadline (first spinning, where the hub was told to). Returns how many calls it made; 0: the
  /// deadline has passed, or it was interrupted. One thread at a time: a second one waits inside
  /// for its turn.
  virtual int serve(Deadline deadline) = 0;
  /// Makes the thread in serve() return or, if none is there, the next one that comes. Any thread,
  /// not a signal handler.
  virtual void interrupt() = 0;
};

}  // namespace trireme::channel
