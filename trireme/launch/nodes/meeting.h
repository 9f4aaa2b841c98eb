// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "trireme/base/clock.h"
#include "trireme/launch/flags/options.h"
#include "trireme/launch/nodes/nodes.h"
#include "trireme/net/auth.h"
#include "trireme/rendezvous/etcd/publication.h"
#include "trireme/store/server/tcp_server.h"
#include "trireme/store/store.h"

namespace trireme::launch {

/// The store, and its server where this launcher keeps it.
struct Meeting {
  std::unique_ptr<StoreServer> server;
  std::shared_ptr<Store> store;
  std::string address;      // of the store, for every node
  std::string own_address;  // this node's, as other nodes reach it
  std::string local_host;   // where it listens for them, if it does not keep the store
  net::Credentials credentials;
  /// Where the address is in etcd and this launcher keeps the store.
  std::unique_ptr<EtcdPublication> publication;
};

/// Keeps the store if the options' address is this host's and nobody does yet, else looks for it
/// (etcd: nodes/etcd_meeting.h); nullopt: asked to stop. ResourceError: the port is taken; Timeout.
std::optional<Meeting> open_meeting(const RunOptions& options, const net::Credentials& credentials,
                                    Deadline deadline, const std::function<bool()>& asked_to_stop);

/// Where other nodes reach this launcher.
Nodes::Door door_of(const Meeting& meeting);
/// The keys of `store` under this prefix, on a connection of its own; nullptr: it does not answer.
std::unique_ptr<Store> table_on(Store& store, const std::string& prefix);

/// Behind `listener`, for all ranks of the job.
std::unique_ptr<StoreServer> serve_job(const RunOptions& options,
                                       const net::Credentials& credentials, net::Listener listener);

/// What would make ranks disagree later is said now: UsageError unless `ours` is what the launcher
/// said that came first.
void agree_on_terms(Store& store, const std::string& ours);
/// Of the terms, what says how often workers start again.
std::string restart_terms(const RunOptions& options);

}  // namespace trireme::launch
