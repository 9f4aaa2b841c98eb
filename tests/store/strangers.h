// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <atomic>
#include <memory>
#include <string>
#include <thread>

#include "trireme/base/error.h"
#include "trireme/net/socket.h"
#include "trireme/store/server/tcp_server.h"
#include "trireme/store/tcp_store.h"

// What the tests of strangers at a store have in common.
namespace trireme::testing {

inline Deadline soon() { return Deadline::after(std::chrono::seconds(20)); }
inline net::Credentials with(const std::string& secret, std::string job = "job") {
  return {std::move(job), net::Secret(secret)};
}
inline const std::string kSecret = "0123456789abcdef0123456789abcdef";

/// Three calls a turn all the while, each of which must come back soon.
class RealClient {
 public:
  explicit RealClient(const net::Endpoint& at)
      : store_(TcpStore::connect(at, with(kSecret), soon())), thread_([this] { run(); }) {}
  ~RealClient() {
    stop_ = true;
    if (thread_.joinable()) thread_.join();
  }
  /// What went wrong, "" for nothing.
  std::string stop() {
    stop_ = true;
    thread_.join();
    if (!error_.empty()) return error_;
    if (turns_ == 0) return "it had no turn";
    return slowest_ < 2 ? "" : "a call took " + std::to_string(slowest_) + " s";
  }

 private:
  void run() {
    try {
      do {
        auto start = Clock::now();
        auto n = store_->add("n", 1);
        store_->set("k", std::to_string(n));
        if (store_->get("k", soon()) != std::to_string(n)) error_ = "another value";
        slowest_ = std::max(slowest_, seconds_since(start));
        ++turns_;
      } while (!stop_ && error_.empty());
    } catch (const std::exception& error) {
      error_ = error.what();
    }
  }

  std::unique_ptr<TcpStore> store_;
  std::atomic<bool> stop_{false};
  std::string error_;
  double slowest_ = 0;
  int turns_ = 0;
  std::thread thread_;
};

/// Reads until the other end closes; false when it had not at the deadline.
inline bool closes(net::Socket& socket, Deadline deadline) {
  char bytes[4096];
  try {
    while (socket.wait_readable(deadline)) {
      auto n = socket.recv_now(bytes, sizeof bytes);
      if (n && *n == 0) return true;
    }
  } catch (const PeerLost&) {
    return true;
  }
  return false;
}

}  // namespace trireme::testing
