// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "trireme/base/clock.h"
#include "trireme/base/export.h"
#include "trireme/net/http/http.h"
#include "trireme/rendezvous/etcd/messages.h"
#include "trireme/rendezvous/etcd/servers.h"

namespace trireme {

/// etcd's keys and leases, through its JSON gateway. Each call asks the server that answered last,
/// then the others. PeerLost: none of them can answer now, and later one may. UsageError: none is
/// an etcd that we may use, and time does not mend that. Aborted: `give_up`, asked about once a
/// second, said so. One thread at a time.
class TRIREME_API EtcdClient {
 public:
  explicit EtcdClient(EtcdServers servers, std::function<bool()> give_up = {});

  /// How long each server has for an answer. 5 s unless set.
  void set_answer_limit(Duration limit) { limit_ = limit; }

  /// nullopt: there is no such key.
  std::optional<std::string> get(const std::string& key);
  /// The id of a new lease, which ends by itself after `ttl` unless it is kept alive.
  int64_t grant(std::chrono::seconds ttl);
  /// False: it has ended, and with it all keys under it.
  bool keep_alive(int64_t lease);
  /// Ends it now. One that has ended already is fine.
  void revoke(int64_t lease);
  struct Put {
    bool lease_ended = false;  // nothing was put
    std::string value;         // of the key, after that: ours, or what stood there
  };
  Put put_if_absent(const std::string& key, const std::string& value, int64_t lease);

  /// This host's numeric address on the way to the server that answered last.
  const std::string& local_host() const { return local_host_; }
  const EtcdServers& servers() const { return servers_; }

 private:
  using Read = std::function<void(const std::string& answer)>;
  /// False: etcd found no such lease.
  bool call(const etcd::Message& message, const Read& read);
  bool ask(const std::string& url, const etcd::Message& message, const Read& read);

  const EtcdServers servers_;
  const std::function<bool()> give_up_;
  net::HttpClient http_;
  Duration limit_ = std::chrono::seconds(5);
  size_t first_ = 0;  // the server to ask first
  std::string local_host_;
};

}  // namespace trireme
