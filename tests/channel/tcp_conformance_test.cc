// SPDX-License-Identifier: Apache-2.0
#include "tests/channel/conformance.h"
#include "tests/channel/conformance_processes.h"
#include "trireme/channel/tcp/hub.h"
#include "trireme/net/secret.h"

namespace trireme::channel {
namespace {

std::unique_ptr<Hub> make_tcp(conformance::HubSettings settings) {
  TcpOptions options;
  options.self = settings.self;
  options.credentials = {"job", net::Secret("0123456789abcdef0123456789abcdef")};
  options.accept = std::move(settings.accept);
  options.spin = settings.spin;
  return tcp_hub(std::move(options));
}

/// Without a secret nothing is sealed.
std::unique_ptr<Hub> make_insecure(conformance::HubSettings settings) {
  TcpOptions options;
  options.self = settings.self;
  options.accept = std::move(settings.accept);
  return tcp_hub(std::move(options));
}

}  // namespace

TRIREME_CHANNEL_CONFORMANCE(channel_tcp_conformance, make_tcp)
TRIREME_CHANNEL_CONFORMANCE_OF_PROCESSES(channel_tcp_conformance, make_tcp)
TRIREME_CHANNEL_FACT(channel_tcp_insecure, make_insecure, bodies_of_every_size_come_whole)
TRIREME_CHANNEL_FACT(channel_tcp_insecure, make_insecure, a_short_message_overtakes_a_long_one)

}  // namespace trireme::channel
