// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "tests/rpc/workers.h"
#include "tests/support/ranks.h"
#include "trireme/base/file.h"
#include "trireme/rpc/server/parameter_client.h"
#include "trireme/rpc/server/parameter_server.h"
#include "trireme/rpc/server/sharded_embedding.h"

// Servers of parameters and their workers, all in this process.
namespace trireme::rpc_server_test {

using namespace rpc_test;

class Servers {
 public:
  /// With `folder`, server i has folder/i.
  Servers(int n, rpc::ServerOptions options, std::string folder = {})
      : options_(std::move(options)), folder_(std::move(folder)), running_(static_cast<size_t>(n)) {
    for (int i = 0; i < n; ++i) {
      names.push_back("server" + std::to_string(i));
      begin(i);
    }
  }
  ~Servers() {
    for (auto& one : running_) end(one);
  }

  void begin(int i) {
    Running& one = running_[static_cast<size_t>(i)];
    auto options = options_;
    if (!folder_.empty()) options.folder = folder_ + "/" + std::to_string(i);
    one.server = std::make_unique<rpc::ParameterServer>(options);
    one.worker = std::make_unique<rpc::Worker>(
        job.start(names[static_cast<size_t>(i)], {one.server->offer()}));
  }
  /// As if its process had been killed: what it had in memory is gone.
  void kill(int i) {
    job.net->kill(names[static_cast<size_t>(i)]);
    end(running_[static_cast<size_t>(i)]);
  }
  const rpc::ParameterServer& server(int i) const {
    return *running_[static_cast<size_t>(i)].server;
  }

  rpc::ClientOptions client(int rank) const {
    rpc::ClientOptions options;
    options.servers = names;
    options.rank = rank;
    options.deadline = kPlenty;
    return options;
  }
  /// f(rank, worker) on a thread of each worker. What they threw, "" where nothing.
  std::vector<std::string> workers(int n, const std::function<void(int, rpc::Worker&)>& f) {
    std::vector<std::string> outcomes(static_cast<size_t>(n));
    std::vector<std::thread> threads;
    for (int r = 0; r < n; ++r)
      threads.emplace_back([&, r] {
        outcomes[static_cast<size_t>(r)] = testing::outcome_of([&] {
          auto me = job.start("trainer" + std::to_string(r));
          f(r, me);
        });
      });
    for (auto& thread : threads) thread.join();
    return outcomes;
  }

  const Job job{};
  std::vector<std::string> names;

 private:
  struct Running {
    std::unique_ptr<rpc::ParameterServer> server;
    std::unique_ptr<rpc::Worker> worker;
  };
  static void end(Running& one) {
    if (one.worker) one.worker->shutdown({.graceful = false, .deadline = Duration::zero()});
    one.worker.reset();
    one.server.reset();
  }

  const rpc::ServerOptions options_;
  const std::string folder_;
  std::vector<Running> running_;
};

inline std::vector<std::string> nobody_threw(size_t n) { return std::vector<std::string>(n); }

}  // namespace trireme::rpc_server_test
