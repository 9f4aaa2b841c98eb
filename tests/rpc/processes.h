// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/rpc/roads.h"
#include "tests/store/child.h"
#include "trireme/net/secret.h"
#include "trireme/store/server/tcp_server.h"
#include "trireme/store/tcp_store.h"

// Workers that are processes of their own.
namespace trireme::rpc_test {

/// The store of such a job, which this process keeps. Made after the processes have been forked,
/// since it has a thread.
class SharedStore {
 public:
  SharedStore() : server_({.credentials = credentials()}, at_) {}
  static net::Credentials credentials() { return {"rpc test", std::nullopt}; }
  std::string address() const { return at_.text(); }
  static std::shared_ptr<Store> connect(const std::string& address) {
    return TcpStore::connect(net::Endpoint::parse(address), credentials(),
                             Deadline::after(kPlenty));
  }
  std::shared_ptr<Store> connect() const { return connect(address()); }

 private:
  const net::Endpoint at_ = net::Endpoint::unix_abstract("trireme-test-" + net::random_token());
  StoreServer server_;
};

inline rpc::Options process_options(const std::string& road, const std::string& name,
                                    const std::string& store, std::vector<rpc::Offer> offers = {}) {
  rpc::Options options;
  options.name = name;
  options.offers = std::move(offers);
  options.deadline = kPlenty;
  options.store = SharedStore::connect(store);
  options.roads = {road == "tcp" ? tcp_road() : local_road()};
  options.threads = 2;
  options.most_threads = 6;
  return options;
}

/// A worker in a forked process: it joins when it is told the store's address, says "ready", and
/// answers calls until it is killed or told to end. `offers` is called there.
class WorkerProcess {
 public:
  using Parent = testing::Child::Parent;
  WorkerProcess(const std::string& road, const std::string& name,
                const std::function<std::vector<rpc::Offer>(const Parent&)>& offers)
      : child_([road, name, offers](const Parent& parent) {
          ::alarm(120);
          const std::string store = parent.hear();
          if (store.empty()) return;
          auto worker = rpc::init(process_options(road, name, store, offers(parent)));
          parent.tell("ready");
          parent.hear();
          worker.shutdown({.graceful = false, .deadline = kPlenty});
        }) {}
  /// True: it has joined.
  bool join(const SharedStore& store) {
    child_.tell(store.address());
    return child_.hear(kPlenty) == "ready";
  }
  testing::Child& operator*() { return child_; }
  testing::Child* operator->() { return &child_; }

 private:
  testing::Child child_;
};

}  // namespace trireme::rpc_test
