// SPDX-License-Identifier: Apache-2.0
#include "trireme/rpc/agent/loopback.h"

#include <cstring>
#include <deque>
#include <mutex>
#include <new>
#include <optional>
#include <utility>

namespace trireme::rpc::detail {
namespace {

constexpr std::align_val_t kAligned{64};

std::shared_ptr<void> memory(uint64_t bytes) {
  return {::operator new(bytes ? bytes : 1, kAligned),
          [](void* data) { ::operator delete(data, kAligned); }};
}

class Loopback final : public channel::Channel {
 public:
  Loopback(channel::Peer self, std::shared_ptr<channel::Receiver> receiver)
      : self_(std::move(self)), receiver_(std::move(receiver)) {}

  bool send(channel::Message message) override {
    for (auto& body : message.bodies) {
      auto copy = memory(body.bytes);
      if (body.bytes > 0) std::memcpy(copy.get(), body.data.get(), body.bytes);
      body.data = std::move(copy);
    }
    {
      std::lock_guard lock(mutex_);
      if (closed_) return false;
      messages_.push_back(std::move(message));
    }
    deliver();
    return true;
  }
  uint64_t unsent() const override { return 0; }
  std::shared_ptr<void> empty(uint64_t bytes) override { return memory(bytes); }
  void close(const std::string& why) override {
    {
      std::lock_guard lock(mutex_);
      if (closed_) return;
      closed_ = true;
      why_ = why;
      messages_.clear();
    }
    deliver();
  }
  const channel::Peer& peer() const override { return self_; }

 private:
  // The calls of the receiver are in order and never at once.
  void deliver() {
    std::unique_lock lock(mutex_);
    if (delivering_) return;
    delivering_ = true;
    while (receiver_) {
      std::optional<channel::Message> message;
      std::shared_ptr<channel::Receiver> receiver = receiver_;
      if (!messages_.empty()) {
        message = std::move(messages_.front());
        messages_.pop_front();
      } else if (closed_) {
        receiver_.reset();
      } else {
        break;
      }
      lock.unlock();
      if (message)
        receiver->received(std::move(*message));
      else
        receiver->closed(why_);
      receiver.reset();
      message.reset();
      lock.lock();
    }
    delivering_ = false;
  }

  const channel::Peer self_;
  std::mutex mutex_;
  std::shared_ptr<channel::Receiver> receiver_;
  std::deque<channel::Message> messages_;
  bool delivering_ = false, closed_ = false;
  std::string why_;
};

}  // namespace

std::shared_ptr<channel::Channel> loopback(const channel::Peer& self,
                                           std::shared_ptr<channel::Receiver> receiver) {
  return std::make_shared<Loopback>(self, std::move(receiver));
}

}  // namespace trireme::rpc::detail
