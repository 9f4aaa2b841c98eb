// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/support/processes.h"
#include "trireme/base/error.h"
#include "trireme/channel/channel.h"

// Workers for tests of any Hub: a hub with a thread that serves, what comes to it, and bodies whose
// bytes can be told from others.
namespace trireme::channel::conformance {

struct HubSettings {
  Peer self{};
  Accept accept{};
  Duration spin{0};
};
using MakeHub = std::function<std::unique_ptr<Hub>(HubSettings)>;

inline Deadline soon() { return Deadline::after(std::chrono::seconds(30)); }

/// Not looked at by ThreadSanitizer, for which it would be most of what tests do.
__attribute__((no_sanitize("thread"))) inline void fill(void* to, uint64_t bytes, uint64_t seed) {
  auto* p = static_cast<unsigned char*>(to);
  uint64_t i = 0;
  for (uint64_t word = seed * 0x9E3779B97F4A7C15u + 1; i + 8 <= bytes; i += 8, word += 0x10001)
    std::memcpy(p + i, &word, 8);
  for (; i < bytes; ++i) p[i] = static_cast<unsigned char>(seed + i);
}
inline std::string pattern(uint64_t bytes, uint64_t seed) {
  std::string text(bytes, '\0');
  fill(text.data(), bytes, seed);
  return text;
}
inline Body body_of(uint64_t bytes, uint64_t seed) {
  if (bytes == 0) return {};
  std::shared_ptr<void> memory(std::malloc(bytes), std::free);
  fill(memory.get(), bytes, seed);
  return {std::move(memory), bytes};
}
inline bool is_body(const Body& body, uint64_t bytes, uint64_t seed) {
  if (body.bytes != bytes) return false;
  return bytes == 0 || std::memcmp(body.data.get(), pattern(bytes, seed).data(), bytes) == 0;
}

inline std::pair<std::string, std::string> kind_and_text(const std::function<void()>& body) {
  try {
    body();
    return {"", ""};
  } catch (const Error& e) {
    return {e.kind(), e.what()};
  }
}

/// Keeps what comes.
class Inbox : public Receiver {
 public:
  void received(Message message) override {
    std::lock_guard lock(mutex_);
    EXPECT_EQ(closings_, 0) << "a message behind the end";
    messages_.push_back(std::move(message));
    came_.notify_all();
  }
  void closed(const std::string& why) override {
    std::lock_guard lock(mutex_);
    why_ = why;
    ++closings_;
    came_.notify_all();
  }
  /// Whether so many messages come before one loses patience.
  bool has(size_t n) const {
    std::unique_lock lock(mutex_);
    return came_.wait_for(lock, std::chrono::seconds(60), [&] { return messages_.size() >= n; });
  }
  std::vector<Message> messages() const {
    std::lock_guard lock(mutex_);
    return messages_;
  }
  std::vector<Message> take_all() {
    std::lock_guard lock(mutex_);
    return std::exchange(messages_, {});
  }
  bool is_closed() const {
    std::unique_lock lock(mutex_);
    return came_.wait_for(lock, std::chrono::seconds(30), [&] { return closings_ > 0; });
  }
  int closings() const {
    std::lock_guard lock(mutex_);
    return closings_;
  }
  std::string why() const {
    std::lock_guard lock(mutex_);
    return why_;
  }

 private:
  mutable std::mutex mutex_;
  mutable std::condition_variable came_;
  std::vector<Message> messages_;
  std::string why_;
  int closings_ = 0;
};

/// A hub and a thread that serves it.
class Worker {
 public:
  struct Accepted {
    std::shared_ptr<Channel> channel;
    std::shared_ptr<Inbox> inbox;
  };

  Worker(const MakeHub& make, const std::string& name, uint64_t generation = 7, Duration spin = {})
      : self{name, generation},
        hub_(make({self, [this](const auto& channel) { return let_in(channel); }, spin})) {
    start();
  }
  ~Worker() {
    stop();
    hub_.reset();
  }
  Worker(const Worker&) = delete;

  Hub& hub() { return *hub_; }
  std::string address() const { return hub_->address(); }
  void start() {
    stopping_ = false;
    thread_ = std::thread([this] {
      while (!stopping_) hub_->serve(Deadline::never());
    });
  }
  void stop() {
    if (!thread_.joinable()) return;
    stopping_ = true;
    hub_->interrupt();
    thread_.join();
  }
  /// The peers that opened channels, in order.
  std::vector<Accepted> accepted() const {
    std::lock_guard lock(mutex_);
    return accepted_;
  }

  const Peer self;
  std::atomic<bool> accepts{true};
  /// If it is set before anybody opens a channel: takes what comes instead of an Inbox.
  std::function<void(Channel&, Message)> on_message;

 private:
  struct Answering final : Inbox {
    void received(Message message) override {
      if (const auto to = channel.lock()) on_message(*to, std::move(message));
    }
    std::weak_ptr<Channel> channel;
    std::function<void(Channel&, Message)> on_message;
  };
  std::shared_ptr<Receiver> let_in(const std::shared_ptr<Channel>& channel) {
    if (!accepts) return nullptr;
    std::shared_ptr<Inbox> inbox;
    if (on_message) {
      auto answering = std::make_shared<Answering>();
      answering->channel = channel;
      answering->on_message = on_message;
      inbox = std::move(answering);
    } else {
      inbox = std::make_shared<Inbox>();
    }
    std::lock_guard lock(mutex_);
    accepted_.push_back({channel, inbox});
    return inbox;
  }

  mutable std::mutex mutex_;
  std::vector<Accepted> accepted_;
  std::atomic<bool> stopping_{false};
  std::unique_ptr<Hub> hub_;
  std::thread thread_;
};

/// A channel that `from` opens to `to`, with both of its ends.
struct Line {
  Line(Worker& from, Worker& to) : near(std::make_shared<Inbox>()) {
    const size_t before = to.accepted().size();
    channel = from.hub().open(to.address(), to.self, near, soon());
    testing::eventually([&] { return to.accepted().size() > before; });
    for (const auto& one : to.accepted())
      if (one.channel->peer().name == from.self.name) far_channel = one.channel, far = one.inbox;
  }
  std::shared_ptr<Inbox> near, far;
  std::shared_ptr<Channel> channel, far_channel;
};

}  // namespace trireme::channel::conformance
