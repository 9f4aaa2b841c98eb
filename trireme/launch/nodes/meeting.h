// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "trireme/base/clock.h"
#include "trireme/launch/flags/options.h"
#include "trireme/net/secret.h"
#include "trireme/store/server/tcp_server.h"
#include "trireme/store/store.h"

namespace trireme::launch {

/// The store, and its server where this launcher keeps it.
struct Meeting {
  std::unique_ptr<StoreServer> server;
  std::shared_ptr<Store> store;
  std::string address;  // of the store, for every node
};

/// Keeps the store if the options' address is this host's and nobody does yet, else looks for it;
/// nullopt: asked to stop. ResourceError: the port is taken; Timeout.
std::optional<Meeting> open_meeting(const RunOptions& options, const net::Credentials& credentials,
                                    Deadline deadline, const std::function<bool()>& asked_to_stop);

/// What would make ranks disagree later is said now: UsageError unless `ours` is what the launcher
/// said that came first.
void agree_on_terms(Store& store, const std::string& ours);
/// Of the terms, what says how often workers start again.
std::string restart_terms(const RunOptions& options);

/// This node's address, as other nodes reach it. `keeps_store`: it is where they meet.
std::string own_address(const RunOptions& options, bool keeps_store);

}  // namespace trireme::launch
