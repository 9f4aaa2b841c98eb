// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "tests/rpc/workers.h"
#include "trireme/channel/local/hub.h"
#include "trireme/channel/tcp/hub.h"
#include "trireme/net/secret.h"

// The roads that calls travel, for tests of what must hold on each of them.
namespace trireme::rpc_test {

inline const std::string kJobSecret = "0123456789abcdef0123456789abcdef";

inline rpc::Road local_road() {
  return {"local", [](const channel::Peer& self, channel::Accept accept) {
            return std::shared_ptr<channel::Hub>(
                channel::local_hub({.self = self, .accept = std::move(accept)}));
          }};
}

inline rpc::Road tcp_road(const std::string& secret = kJobSecret) {
  return {"tcp", [secret](const channel::Peer& self, channel::Accept accept) {
            channel::TcpOptions options;
            options.self = self;
            options.credentials = {"job", net::Secret(secret)};
            options.accept = std::move(accept);
            return std::shared_ptr<channel::Hub>(channel::tcp_hub(std::move(options)));
          }};
}

/// "memory", "local" or "tcp".
inline rpc::Options on_road(const Job& job, const std::string& road, const std::string& name,
                            std::vector<rpc::Offer> offers = {}) {
  rpc::Options options = job.options(name, std::move(offers));
  if (road == "local") options.roads = {local_road()};
  if (road == "tcp") options.roads = {tcp_road()};
  return options;
}

}  // namespace trireme::rpc_test
