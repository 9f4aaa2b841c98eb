// SPDX-License-Identifier: Apache-2.0
#include "trireme/store/tcp_server.h"

#include "trireme/store/memory_store.h"
#include "trireme/store/server_loop.h"

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

std::vector<net::Endpoint> StoreServer::endpoints() const { return loop_->endpoints(); }
size_t StoreServer::clients() const { return loop_->clients(); }
bool StoreServer::wait_until_clients_left(Deadline deadline) {
  return loop_->wait_until_clients_left(deadline);
}
std::vector<std::string> StoreServer::refusals() const { return loop_->refusals(); }
void StoreServer::stop_listening() { loop_->stop_listening(); }
void StoreServer::stop() { loop_->stop(); }

std::unique_ptr<Store> StoreServer::local_store() {
  return std::make_unique<MemoryStore>(loop_->table(), endpoints().front().text());
}

}  // namespace trireme
