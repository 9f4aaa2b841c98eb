// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "bench/channel_bare.h"
#include "trireme/base/clock.h"
#include "trireme/channel/channel.h"

// One end of a channel that benches measure through, and memory to send.
namespace trireme::bare {

using channel::Channel;
using channel::Hub;
using channel::Message;
using channel::Receiver;

/// Counts what comes; in the other process, it answers each message with an empty one once it has
/// let go of its bodies.
class End final : public Receiver {
 public:
  explicit End(bool answers) : answers_(answers) {}
  void received(Message message) override {
    const std::string answer = message.bytes;
    message.bodies.clear();
    ++got;
    if (answer == "large") ++large;
    if (answers_) channel->send({answer, {}});
  }
  void closed(const std::string&) override { over = true; }

  std::shared_ptr<Channel> channel;
  uint64_t got = 0, large = 0;
  bool over = false;

 private:
  bool answers_;
};

struct Caller {
  Hub& hub;
  End& end;
  void await(uint64_t got) {
    while (end.got < got) hub.serve(Deadline::never());
  }
  double call(Message message) {
    const auto begin = Clock::now();
    const uint64_t due = end.got + 1;
    end.channel->send(std::move(message));
    await(due);
    return seconds_since(begin) * 1e6;
  }
  double empty_calls(int calls, double part = 0.5) {
    std::vector<double> us;
    for (int i = 0; i < calls; ++i) us.push_back(call({}));
    return median(us, part);
  }
  double outstanding(int calls) {
    const auto begin = Clock::now();
    const uint64_t first = end.got;
    for (uint64_t sent = 0; end.got - first < static_cast<uint64_t>(calls);) {
      for (; sent < static_cast<uint64_t>(calls) && sent - (end.got - first) < kOutstanding; ++sent)
        end.channel->send({});
      hub.serve(Deadline::never());
    }
    return calls / seconds_since(begin);
  }
};

inline std::shared_ptr<void> warm(uint64_t bytes) {
  std::shared_ptr<void> memory(std::aligned_alloc(4096, bytes), std::free);
  std::memset(memory.get(), 1, bytes);
  return memory;
}

/// Microseconds that a copy takes of memory that is in no cache.
inline double copy_us(void* to, const void* from, uint64_t bytes) {
  const auto begin = Clock::now();
  std::memcpy(to, from, bytes);
  asm volatile("" : : "r"(to) : "memory");
  return seconds_since(begin) * 1e6;
}

}  // namespace trireme::bare
