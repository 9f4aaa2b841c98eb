// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "trireme/base/export.h"
#include "trireme/net/auth.h"
#include "trireme/net/endpoint.h"
#include "trireme/net/listener.h"
#include "trireme/net/seal.h"
#include "trireme/net/socket.h"

// MASTER_PORT is torch's. Ours is the first free one of the next eight, where rank 0 serves and the
// others look for the one that knows their job.
namespace trireme::detail {

struct PortRange {
  int first = 0;
  int last = 0;  // inclusive
  std::string text() const;
};
TRIREME_API PortRange ports_beside(int master_port);

/// At the one interface of this host that `host` names. Where it names none (an address in front of
/// this host, or Debian's 127.0.1.1 for one's own name) at all of them, with a log line.
/// ResourceError when every port is taken.
TRIREME_API net::Listener listen_at_first_free(const std::string& host, PortRange ports);

/// At this port of the interface that `host` names, or of all where the name has a loopback address
/// alone; nullopt where it is of another host, or somebody listens there already.
TRIREME_API std::optional<net::Listener> listen_if_own_address(const std::string& host, int port);

/// The job's store, found and entered.
struct JobStoreFound {
  net::Socket socket;
  net::Session session;
  net::Endpoint at;
};
/// How long a refusal that may be ours is not believed.
inline constexpr Duration kRefusalPatience = std::chrono::seconds(10);
/// Asks at every port, again and again, until one lets us in. Other jobs, other programs and
/// strangers behind some of the ports do no harm: who passes us on to the store at another of them
/// is passed over, unless that is the only way; who says that our secret is wrong is not believed
/// before all ports have been asked for kRefusalPatience (where there is one port: at once). Then
/// UsageError. Timeout naming rank 0, host and ports; also where `give_up`, which is asked every
/// two seconds at the latest, says so.
TRIREME_API JobStoreFound find_job_store(const std::string& host, PortRange ports,
                                         const net::Credentials& credentials, Deadline deadline,
                                         const std::function<bool()>& give_up = {});

}  // namespace trireme::detail
