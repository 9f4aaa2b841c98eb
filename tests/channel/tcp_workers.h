// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "trireme/channel/tcp/hub.h"
#include "trireme/net/secret.h"

// Workers for the tests of channels over TCP.
namespace trireme::testing {

inline const std::string kChannelSecret = "0123456789abcdef0123456789abcdef";

inline Deadline in_time() { return Deadline::after(std::chrono::seconds(60)); }

/// Keeps what comes, for other threads to ask.
class Listening final : public channel::Receiver {
 public:
  void received(channel::Message message) override {
    std::lock_guard lock(mutex_);
    messages_.push_back(std::move(message));
    news_.notify_all();
  }
  void closed(const std::string& why) override {
    std::lock_guard lock(mutex_);
    ++closed_;
    why_ = why;
    news_.notify_all();
  }
  /// The next message; none: the channel closed first, or nothing came for long.
  std::optional<channel::Message> next() {
    std::unique_lock lock(mutex_);
    if (!wait(lock, [&] { return !messages_.empty() || closed_; })) return std::nullopt;
    if (messages_.empty()) return std::nullopt;
    auto out = std::move(messages_.front());
    messages_.pop_front();
    return out;
  }
  /// Why it closed; "" when it has not for long.
  std::string end() {
    std::unique_lock lock(mutex_);
    wait(lock, [&] { return closed_ > 0; });
    return why_;
  }
  size_t count() const {
    std::lock_guard lock(mutex_);
    return messages_.size();
  }
  int times_closed() const {
    std::lock_guard lock(mutex_);
    return closed_;
  }

 private:
  template <class Condition>
  bool wait(std::unique_lock<std::mutex>& lock, const Condition& condition) {
    const auto until = in_time();
    while (!condition() && !until.expired())
      news_.wait_for(lock, std::chrono::milliseconds(until.poll_ms()));
    return condition();
  }

  mutable std::mutex mutex_;
  std::condition_variable news_;
  std::deque<channel::Message> messages_;
  int closed_ = 0;
  std::string why_;
};

/// A hub with a thread that serves, and what its peers' channels say.
class Worker {
 public:
  static channel::TcpOptions options(std::string name, uint64_t generation = 1) {
    channel::TcpOptions out;
    out.self = {std::move(name), generation};
    out.credentials = {"job", net::Secret(kChannelSecret)};
    return out;
  }
  explicit Worker(const std::string& name) : Worker(options(name)) {}
  explicit Worker(channel::TcpOptions options, bool serves = true) : self(options.self) {
    if (!options.accept)
      options.accept = [this](const std::shared_ptr<channel::Channel>& channel) {
        std::lock_guard lock(mutex_);
        accepted_.push_back(channel);
        heard_.push_back(std::make_shared<Listening>());
        news_.notify_all();
        return heard_.back();
      };
    hub = channel::tcp_hub(std::move(options));
    if (serves) thread_ = std::thread([this] { serve(); });
  }
  ~Worker() { stop(); }
  void stop() {
    stop_ = true;
    if (!thread_.joinable()) return;
    hub->interrupt();
    thread_.join();
  }
  void serve() {
    while (!stop_) hub->serve(Deadline::after(std::chrono::seconds(5)));
  }

  std::shared_ptr<channel::Channel> open(const Worker& to, std::shared_ptr<Listening> receiver) {
    return hub->open(to.hub->address(), to.self, std::move(receiver), in_time());
  }
  /// Of the n-th channel that a peer opened.
  std::shared_ptr<Listening> heard(size_t n = 0) { return at(n).second; }
  std::shared_ptr<channel::Channel> accepted(size_t n = 0) { return at(n).first; }
  size_t channels() const {
    std::lock_guard lock(mutex_);
    return accepted_.size();
  }

  const channel::Peer self;
  std::unique_ptr<channel::Hub> hub;

 private:
  std::pair<std::shared_ptr<channel::Channel>, std::shared_ptr<Listening>> at(size_t n) {
    std::unique_lock lock(mutex_);
    const auto until = in_time();
    while (accepted_.size() <= n && !until.expired())
      news_.wait_for(lock, std::chrono::milliseconds(until.poll_ms()));
    return {accepted_.at(n), heard_.at(n)};
  }

  mutable std::mutex mutex_;
  std::condition_variable news_;
  std::vector<std::shared_ptr<channel::Channel>> accepted_;
  std::vector<std::shared_ptr<Listening>> heard_;
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

/// Bytes that say where they are.
inline channel::Body pattern(uint64_t bytes, uint64_t seed) {
  auto words = std::make_shared<std::vector<uint64_t>>((bytes + 7) / 8);
  for (size_t i = 0; i < words->size(); ++i) (*words)[i] = (i + seed) * 0x9E3779B97F4A7C15u;
  const void* const data = words->data();
  return {std::shared_ptr<const void>(std::move(words), data), bytes};
}
inline bool same(const channel::Body& a, const channel::Body& b) {
  return a.bytes == b.bytes &&
         (a.bytes == 0 || std::memcmp(a.data.get(), b.data.get(), a.bytes) == 0);
}

}  // namespace trireme::testing
