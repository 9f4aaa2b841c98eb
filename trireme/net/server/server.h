// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "trireme/base/clock.h"
#include "trireme/base/export.h"
#include "trireme/net/auth.h"
#include "trireme/net/listener.h"
#include "trireme/net/server/event_loop.h"
#include "trireme/net/server/server_connection.h"
#include "trireme/net/server/strangers.h"

namespace trireme::net {

/// What a server is for. Called on the thread that turns its loop.
class ServerUser {
 public:
  virtual ~ServerUser() = default;
  /// A peer has shown who he is.
  virtual void proved(ServerConnection& connection) = 0;
  /// The next whole frame of such a peer. What it throws ends the connection: Corrupt and Mismatch
  /// with a refusal that says so, the rest without a word. If it takes the connection (take()), it
  /// does so last.
  virtual void came(ServerConnection& connection, Frame frame) = 0;
  /// The last call for a connection that had proved itself, unless it was taken. It may still be
  /// told why.
  virtual void closed(ServerConnection& connection) = 0;
};

/// Who may come in at a port, and the frames of those who may: accepting, handshakes (net/auth.h),
/// limits on strangers, what waits to be sent, and closing. It has no thread: whoever turns the
/// loop calls check_limits() after each turn, and waits no longer than timeout_ms() says. A
/// connection that has not proved itself within `handshake_limit` is closed, and at most
/// `max_pending` such are held: a newcomer takes the place of the one that gives way first
/// (Strangers). Threads: the first group may be called from any, the rest from the loop's.
class TRIREME_API Server {
 public:
  struct Options {
    Credentials credentials;
    std::string noun;  // of what is served, for texts: "store"
    size_t max_clients = 16384;
    size_t max_pending = 64;
    Duration handshake_limit = kHandshakeLimit;
  };
  /// The loop and the user outlive it. ResourceError, UsageError (a long job id).
  Server(EventLoop& loop, Options options, std::vector<Listener> listeners, ServerUser& user);
  ~Server();
  Server(const Server&) = delete;

  /// With the ports that the kernel chose, in the order of the listeners.
  std::vector<Endpoint> endpoints() const;
  /// Connections that have proved themselves, now.
  size_t clients() const;
  bool wait_until_clients_left(Deadline deadline);
  /// "10.0.0.3: wrong secret": the first refusals, one line per source.
  std::vector<std::string> refusals() const;
  /// Connections so far that ended before they had proved who they are.
  size_t strangers() const;
  /// No new connections, and the addresses are free again; waits for the loop's next turn.
  void stop_listening();

  /// Nobody need look at the limits before.
  int timeout_ms() const;
  /// Ends who has had his time, listens again after a rest, asks whether links are cut.
  void check_limits();
  /// Sends, and looks after a while whether it was acknowledged.
  void reply(ServerConnection& c, std::string frame);
  /// After a pause: takes the frames that have come meanwhile. The connection may be gone
  /// afterwards.
  void resume(ServerConnection& c);
  /// At once.
  void close(ServerConnection& c) { close(c.id); }
  /// What it gets yet goes out; nothing more is taken from it.
  void start_closing(ServerConnection& c);
  /// The same, with this as the last word.
  void refuse(ServerConnection& c, ServerHandshake::Step step);
  /// It is closed unless it has been taken by then, or its limit was moved.
  void set_limit(ServerConnection& c, Deadline limit);
  /// How a connection goes on with somebody else.
  struct Taken {
    Socket socket;
    Session session;
    std::string early;  // bytes that have come and were no whole frame yet
  };
  /// It is no longer of this server, which has nothing more to send to it; the object is gone.
  Taken take(ServerConnection& c);
  /// Closes all connections, without a call of the user, and the listeners.
  void end();

 private:
  friend struct ServerConnection;
  struct Door;  // one listener in the loop

  void serve(ServerConnection& c, uint32_t events);
  void on_input(ServerConnection& c);
  void on_handshake(ServerConnection& c, const Frame& frame);
  void update_interest(ServerConnection& c);
  void close(uint64_t id);

  void accept_from(Listener& listener);
  void make_room_for_one();
  void set_listening(bool on);
  void close_listeners();
  void sooner_limit(Deadline limit);
  void one_client_less();
  void note_stranger();
  void note_refusal(const std::string& source, const std::string& text);
  std::string name() const;  // "the store at tcp://…"

  EventLoop& loop_;
  const Options options_;
  const Credentials unix_credentials_;
  ServerUser& user_;
  std::vector<Listener> listeners_;
  std::vector<std::unique_ptr<Door>> doors_;

  std::unordered_map<uint64_t, std::unique_ptr<ServerConnection>> connections_;
  uint64_t next_id_ = 1;
  Strangers strangers_;  // connections that are not open
  bool listening_ = false;
  Deadline listen_again_ = Deadline::never();
  Deadline next_limit_ = Deadline::never();  // no limit of any connection passes before this

  mutable std::mutex mutex_;
  std::condition_variable left_;  // a client left, or the listeners closed
  size_t clients_ = 0;
  size_t strangers_seen_ = 0;
  std::vector<std::pair<std::string, std::string>> refusals_;  // source, text
  bool deaf_ = false;                                          // the listeners are closed
  std::atomic<bool> stop_listening_{false};
};

}  // namespace trireme::net
