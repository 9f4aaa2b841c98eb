// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/memory_hub.h"
#include "trireme/rpc/rpc.h"
#include "trireme/store/memory_store.h"

// Workers of one test, in this process.
namespace trireme::rpc_test {

using namespace std::chrono_literals;

/// Waited for where nothing but a fault makes it long.
inline constexpr Duration kPlenty = 30s;

class Job {
 public:
  explicit Job(Duration late = {}, uint64_t seed = 1)
      : net(std::make_shared<testing::MemoryNet>(late, seed)),
        store(std::make_shared<MemoryStore>()) {}

  rpc::Options options(const std::string& name, std::vector<rpc::Offer> offers = {}) const {
    rpc::Options options;
    options.name = name;
    options.offers = std::move(offers);
    options.deadline = kPlenty;
    options.store = std::shared_ptr<Store>(store->clone(Deadline::after(kPlenty)));
    options.roads.push_back(
        {"memory", [net = net](const channel::Peer& self, channel::Accept accept) {
           return net->hub(self, std::move(accept));
         }});
    options.threads = 2;
    options.most_threads = 6;
    return options;
  }
  rpc::Worker start(const std::string& name, std::vector<rpc::Offer> offers = {}) const {
    return rpc::init(options(name, std::move(offers)));
  }

  const std::shared_ptr<testing::MemoryNet> net;
  const std::shared_ptr<Store> store;
};

/// What f throws, as text, if it is an E; else a text that says what happened instead.
template <class E, class F>
std::string text_of(F f) {
  try {
    f();
  } catch (const E& error) {
    return error.what();
  } catch (const std::exception& error) {
    return std::string("another class: ") + error.what();
  }
  return "nothing was thrown";
}

/// Waits until `reached` says so. False: it did not in good time.
inline bool comes_about(const std::function<bool()>& reached) {
  const auto deadline = Deadline::after(kPlenty);
  std::mutex nobody;
  std::unique_lock lock(nobody);
  std::condition_variable condition;
  while (!reached()) {
    if (deadline.expired()) return false;
    condition.wait_for(lock, 1ms);
  }
  return true;
}

/// Handlers wait at it until it is opened.
class Gate {
 public:
  void wait() {
    std::unique_lock lock(mutex_);
    ++waiting_;
    condition_.notify_all();
    condition_.wait_for(lock, kPlenty, [this] { return open_; });
    --waiting_;
  }
  void open() {
    std::lock_guard lock(mutex_);
    open_ = true;
    condition_.notify_all();
  }
  /// False: not so many have come.
  bool has_waiting(int n) {
    std::unique_lock lock(mutex_);
    return condition_.wait_for(lock, kPlenty, [&] { return waiting_ >= n; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable condition_;
  bool open_ = false;
  int waiting_ = 0;
};

}  // namespace trireme::rpc_test
