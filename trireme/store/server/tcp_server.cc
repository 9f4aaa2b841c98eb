// SPDX-License-Identifier: Apache-2.0
#include "trireme/store/server/tcp_server.h"

#include <fmt/core.h>

#include "trireme/store/memory_store.h"
#include "trireme/store/server/server_loop.h"

namespace trireme {
namespace {

std::vector<net::Listener> one(net::Listener listener) {
  std::vector<net::Listener> out;
  out.push_back(std::move(listener));
  return out;
}

}  // namespace

StoreServer::StoreServer(Options options, const net::Endpoint& at)
    : StoreServer(std::move(options), one(net::Listener(at))) {}

StoreServer::StoreServer(Options options, std::vector<net::Listener> listeners)
    : loop_(std::make_unique<Loop>(std::move(options), std::move(listeners))) {}

StoreServer::~StoreServer() {
  if (!is_of_this_process()) [[maybe_unused]]
    Loop* const of_the_parent = loop_.release();
}

std::vector<net::Endpoint> StoreServer::endpoints() const { return loop_->server().endpoints(); }
size_t StoreServer::clients() const { return loop_->server().clients(); }
bool StoreServer::wait_until_clients_left(Deadline deadline) {
  return loop_->server().wait_until_clients_left(deadline);
}
std::vector<std::string> StoreServer::refusals() const { return loop_->server().refusals(); }
size_t StoreServer::strangers() const { return loop_->server().strangers(); }
std::string StoreServer::turned_away() const {
  std::string out;
  if (size_t n = strangers())
    out = fmt::format("{} {} to the store came from strangers and did not authenticate", n,
                      n == 1 ? "connection" : "connections");
  for (const auto& line : refusals())
    out += fmt::format("{}it refused {}", out.empty() ? "the store: " : "; ", line);
  return out;
}
void StoreServer::stop_listening() { loop_->server().stop_listening(); }
void StoreServer::end_with_the_last_client() { loop_->end_with_the_last_client(); }
void StoreServer::stop() { loop_->stop(); }

std::unique_ptr<Store> StoreServer::local_store() {
  return std::make_unique<MemoryStore>(loop_->table(), endpoints().front().text());
}

}  // namespace trireme
