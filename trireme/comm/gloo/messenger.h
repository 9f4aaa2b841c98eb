// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <set>
#include <stdexcept>
#include <string>

#include "trireme/base/clock.h"

namespace c10d {
class ProcessGroupGloo;
}

namespace trireme::detail {

class C10dStore;
struct Flight;
/// A message under way. Dropping it before it is complete takes its memory out of Gloo's hands and
/// leaves the group unusable.
using Message = std::shared_ptr<Flight>;

/// The connection to a rank broke.
struct MessageLost : std::runtime_error {
  MessageLost(int peer, const std::string& what) : std::runtime_error(what), peer(peer) {}
  int peer;  // -1: of a message from any rank
};

/// Bytes between the ranks of a group: ProcessGroupGloo's send and recv. Threads: any, each message
/// by one at a time; revoke() from any. Nothing of it raises SIGPIPE, which Gloo itself would.
class Messenger {
 public:
  /// Connects every pair of ranks. host: the address to listen at; interface: instead of it.
  Messenger(std::unique_ptr<C10dStore> store, int rank, int size, const std::string& host,
            const std::string& interface, Duration connect_limit);
  /// The same ports and threads for another group.
  Messenger(std::unique_ptr<C10dStore> store, int rank, int size, const Messenger& parent,
            Duration connect_limit);
  ~Messenger();

  /// `bytes` > 0. tag: of tags.h. MessageLost.
  Message send(const void* from, size_t bytes, int to, int tag);
  Message recv(void* to, size_t bytes, int from, int tag);  // or kAnySource

  enum class Outcome { complete, revoked, late };
  /// Once complete a message must not be waited for again. Late ends all connections of the group.
  /// MessageLost.
  Outcome wait(const Message& message, Deadline deadline);
  /// Whether wait() would return at once or throw.
  bool is_settled(const Message& message);
  static int source(const Message& message);  // of a complete recv

  /// Closes all connections; waits return. Again: nothing.
  void revoke();

 private:
  void connect(std::unique_ptr<C10dStore> store, int rank, int size, Duration limit);

  struct Torch;
  std::unique_ptr<Torch> torch_;
  const int rank_, size_;
  std::mutex mutex_;
  bool revoked_ = false;
  std::set<Flight*> waiting_;
};

}  // namespace trireme::detail
