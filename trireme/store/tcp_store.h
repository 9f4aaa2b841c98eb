// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>

#include "trireme/base/export.h"
#include "trireme/net/auth.h"
#include "trireme/net/endpoint.h"
#include "trireme/net/seal.h"
#include "trireme/net/socket.h"
#include "trireme/store/one_user.h"
#include "trireme/store/store.h"

namespace trireme {

namespace detail {
struct Request;
struct Reply;
}  // namespace detail

/// A StoreServer's table over one connection, TCP or Unix. One thread at a time (a second one gets
/// a UsageError); clone() connects again with the same credentials. The destructor says goodbye, so
/// that the will is dropped; an object that gave up its connection (PeerLost, Timeout) leaves it.
class TRIREME_API TcpStore final : public Store {
 public:
  /// A server that answers no plain call for this long is given up: Timeout.
  static constexpr Duration kAnswerLimit = std::chrono::seconds(30);

  /// Knocks until the server lets us in: it may start later. UsageError at once for a wrong secret,
  /// another job, or another program behind the port; Timeout at the deadline. At a Unix endpoint
  /// the secret is not used: the server's user must be ours.
  static std::unique_ptr<TcpStore> connect(const net::Endpoint& at, net::Credentials credentials,
                                           Deadline deadline, Duration answer_limit = kAnswerLimit);
  /// On a socket that try_authenticate() was satisfied with, and the session that it gave.
  TcpStore(net::Socket socket, net::Session session, net::Endpoint at, net::Credentials credentials,
           Duration answer_limit = kAnswerLimit);
  ~TcpStore() override;
  void set(const std::string& key, std::string_view value) override;
  std::string get(const std::string& key, Deadline deadline) override;
  std::optional<std::string> try_get(const std::string& key) override;
  int64_t add(const std::string& key, int64_t delta) override;
  std::string compare_set(const std::string& key, std::string_view expected,
                          std::string_view desired) override;
  void wait(const std::vector<std::string>& keys, Deadline deadline) override;
  std::vector<std::string> missing(const std::vector<std::string>& keys) override;
  bool delete_key(const std::string& key) override;
  int64_t count_keys(std::string_view prefix) override;
  void set_will(const std::string& key, std::string_view value) override;
  void clear_will() override;
  void set_answer_limit(Duration limit) override { answer_limit_ = limit; }
  std::unique_ptr<Store> clone(Deadline deadline) override;
  std::string describe() const override { return at_.text(); }

 private:
  detail::Reply call(const detail::Request& request, Deadline deadline);
  detail::Reply call(const detail::Request& request);
  detail::Reply call_waiting(detail::Request request, Deadline deadline);

  net::Socket socket_;
  net::Session session_;
  net::Endpoint at_;
  net::Credentials credentials_;
  Duration answer_limit_;
  bool has_will_ = false;
  std::string broken_;  // why the connection is of no use any more
  detail::StoreUse use_;
};

}  // namespace trireme
