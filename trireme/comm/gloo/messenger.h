// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <condition_variable>
#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <vector>

#include "trireme/base/clock.h"

namespace c10d {
class ProcessGroupGloo;
}

namespace trireme::detail {

class C10dStore;
class Connecting;
struct Flight;
/// A message in flight. Destroying it before it is complete takes its memory away from Gloo and
/// makes the group unusable.
using Message = std::shared_ptr<Flight>;

/// The connection to a rank broke.
struct MessageLost : std::runtime_error {
  MessageLost(int peer, const std::string& what) : std::runtime_error(what), peer(peer) {}
  int peer;  // -1: a message from any rank
};

/// Sends bytes between the ranks of a group by ProcessGroupGloo's send and recv. Callable from any
/// thread, each message from one at a time; revoke() from any. It never raises SIGPIPE, as Gloo
/// itself would.
class Messenger {
 public:
  /// Connects every pair of ranks. host: the address to listen on; interface: used instead, if
  /// given. connecting: can cancel it.
  Messenger(std::unique_ptr<C10dStore> store, int rank, int size, const std::string& host,
            const std::string& interface, Duration connect_limit, Connecting& connecting);
  /// Uses the ports and threads of `parent` for another group.
  Messenger(std::unique_ptr<C10dStore> store, int rank, int size, const Messenger& parent,
            Duration connect_limit, Connecting& connecting);
  ~Messenger();

  /// `bytes` must be above 0; the tag comes from tags.h. Throws MessageLost, here or in the wait.
  Message send(const void* from, size_t bytes, int to, int tag);
  Message recv(void* to, size_t bytes, int from, int tag);  // or kAnySource
  /// As send() and recv(), in this order, but started at the latest when this thread waits for one
  /// of them: for many messages at a time. Use from one thread.
  Message send_soon(const void* from, size_t bytes, int to, int tag);
  Message recv_soon(void* to, size_t bytes, int from, int tag);

  enum class Outcome { complete, revoked, late };
  /// A complete message must not be waited for again. A late one makes the group unusable, unless
  /// waits_again(): then it may be waited for once more. Throws MessageLost.
  bool waits_again() const;
  Outcome wait(const Message& message, Deadline deadline);
  /// Whether wait() would return at once or throw.
  bool is_settled(const Message& message);
  static int source(const Message& message);  // of a complete recv

  /// Closes all connections, so that waits return. Further calls do nothing.
  void revoke();

 private:
  void connect(std::unique_ptr<C10dStore> store, int rank, int size, Duration limit,
               Connecting& connecting);

  Message now(Message message);
  Message soon(Message message);
  void hand_over(const Message* first, size_t count);
  void post_handed();
  void post(Flight& flight);
  void end_late_waits();
  void look_at(Clock::time_point when);

  struct Torch;
  std::unique_ptr<Torch> torch_;
  const int rank_, size_;
  std::vector<Message> soon_;  // of the thread that uses send_soon()
  std::mutex mutex_;
  std::condition_variable posted_;
  std::vector<Message> handed_;  // handed to the loop's thread
  bool revoked_ = false;
  std::map<Flight*, Clock::time_point> waiting_;  // with their deadlines
  /// When the loop's thread next looks for expired waits.
  Clock::time_point alarm_ = Clock::time_point::max();
};

}  // namespace trireme::detail
