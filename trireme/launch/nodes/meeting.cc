// SPDX-License-Identifier: Apache-2.0
#include "trireme/launch/nodes/meeting.h"

#include <utility>
#include <vector>

#include "trireme/base/check.h"
#include "trireme/base/log.h"
#include "trireme/launch/nodes/etcd_meeting.h"
#include "trireme/launch/nodes/patience.h"
#include "trireme/net/address.h"
#include "trireme/net/connect.h"
#include "trireme/rendezvous/job_ports.h"
#include "trireme/rendezvous/join.h"
#include "trireme/store/tcp_store.h"

namespace trireme::launch {
namespace {

/// MASTER_PORT itself is for rank 0 of a Python job; an endpoint is meant as it stands.
detail::PortRange ports_of(const RunOptions& options) {
  if (options.rdzv_backend == "static") return detail::ports_beside(options.master_port);
  return {options.meeting_port, options.meeting_port};
}

/// A pod's name appears in the name service a while after the pod: whose address it is cannot be
/// known before. False: asked to stop.
bool wait_for_name(const std::string& host, Deadline deadline,
                   const std::function<bool()>& asked_to_stop) {
  net::BackOff back_off;
  const auto start = Clock::now();
  bool said = false;
  while (true) {
    try {
      net::resolve({host, 0});
      return true;
    } catch (const ResourceError& error) {
      if (!said && seconds_since(start) > 3) {
        said = true;
        log_warn("{}; trying on", error.what());
      }
      if (asked_to_stop()) return false;
      if (!back_off.pause(deadline)) throw;
    }
  }
}

/// nullopt: the address is not of this host, or another launcher of this host serves there.
std::optional<net::Listener> listen_if_ours(const RunOptions& options) {
  const bool static_nodes = options.rdzv_backend == "static";
  if (static_nodes && options.node_rank > 0) return std::nullopt;
  if (static_nodes || options.rdzv_is_host.value_or(false))
    return detail::listen_at_first_free(options.meeting_host, ports_of(options));
  if (options.rdzv_is_host) return std::nullopt;
  return detail::listen_if_own_address(options.meeting_host, options.meeting_port);
}

std::string own_address(const RunOptions& options, bool keeps_store) {
  if (options.rdzv_backend == "static") return options.master_addr;
  if (!options.local_addr.empty()) return options.local_addr;
  return keeps_store ? options.meeting_host : net::host_name();
}

}  // namespace

std::unique_ptr<StoreServer> serve_job(const RunOptions& options,
                                       const net::Credentials& credentials,
                                       net::Listener listener) {
  StoreServer::Options served;
  served.credentials = credentials;
  served.max_pending = StoreServer::most_strangers(options.nodes * options.nproc_per_node);
  std::vector<net::Listener> listeners;
  listeners.push_back(std::move(listener));
  return std::make_unique<StoreServer>(std::move(served), std::move(listeners));
}

std::optional<Meeting> open_meeting(const RunOptions& options, const net::Credentials& credentials,
                                    Deadline deadline, const std::function<bool()>& asked_to_stop) {
  if (options.rdzv_backend == "etcd")
    return open_etcd_meeting(options, credentials, deadline, asked_to_stop);
  Meeting meeting;
  meeting.credentials = credentials;
  const bool may_be_ours = options.rdzv_backend == "static" ? options.node_rank == 0
                                                            : options.rdzv_is_host.value_or(true);
  if (may_be_ours && !wait_for_name(options.meeting_host, deadline, asked_to_stop))
    return std::nullopt;
  if (auto listener = listen_if_ours(options)) {
    meeting.server = serve_job(options, credentials, std::move(*listener));
    meeting.store = meeting.server->local_store();
    net::Address address = meeting.server->endpoints().at(0).address;
    address.host = options.meeting_host;  // and not the interface, which may be all of them
    meeting.address = address.text();
    meeting.own_address = own_address(options, true);
    return meeting;
  }
  try {
    auto found = detail::find_job_store(options.meeting_host, ports_of(options), credentials,
                                        deadline, asked_to_stop);
    meeting.address = found.at.address.text();
    meeting.own_address = own_address(options, false);
    meeting.local_host =
        options.local_addr.empty() ? found.socket.local_host() : options.local_addr;
    meeting.store = std::make_shared<TcpStore>(std::move(found.socket), std::move(found.session),
                                               found.at, credentials);
    return meeting;
  } catch (const Timeout&) {
    if (deadline.expired()) throw;
    return std::nullopt;
  }
}

Nodes::Door door_of(const Meeting& meeting) {
  return {meeting.server ? net::parse_address(meeting.address).host : meeting.local_host,
          meeting.credentials};
}

std::unique_ptr<Store> table_on(Store& store, const std::string& prefix) {
  try {
    return std::make_unique<PrefixStore>(store.clone(Deadline::after(patience::kStoreAnswers)),
                                         prefix);
  } catch (const Error& error) {
    log_debug("no second connection to the job's store: {}", error.what());
    return nullptr;
  }
}

void agree_on_terms(Store& store, const std::string& ours) {
  const std::string first = store.compare_set("nodes/terms", "", ours);
  check<UsageError>(first == ours,
                    "the nodes of this job were started differently. Here: {}. At the node that "
                    "came first: {}. Start 'trireme run' alike on all of them",
                    ours, first);
}

std::string restart_terms(const RunOptions& options) {
  std::string terms = fmt::format("--max-restarts={}", options.max_restarts);
  if (options.restart_window != Duration::zero())
    terms += fmt::format("; --restart-window={:.0f}",
                         std::chrono::duration<double>(options.restart_window).count());
  if (!options.roles.empty()) terms += "; --role=" + roles_text(options.roles);
  return terms;
}

}  // namespace trireme::launch
