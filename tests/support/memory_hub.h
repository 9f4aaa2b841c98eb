// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "trireme/base/check.h"
#include "trireme/base/clock.h"
#include "trireme/channel/channel.h"

// Hubs of workers in one process, for tests: queues in memory, with delays drawn from a seed, and a
// hand that kills workers, cuts channels and alters messages.
namespace trireme::testing {

class MemoryHub;

/// What the hubs of a test have in common. It outlives them.
class MemoryNet : public std::enable_shared_from_this<MemoryNet> {
 public:
  /// Messages are up to `most` late.
  explicit MemoryNet(Duration most = {}, uint64_t seed = 1) : most_(most), random_(seed) {}

  std::shared_ptr<channel::Hub> hub(const channel::Peer& self, channel::Accept accept);

  /// The worker's process is dead: its channels break, it hears and says nothing any more.
  void kill(const std::string& name);
  /// Its messages stay where they are, as those of a stopped process.
  void stop(const std::string& name) { set_stopped(name, true); }
  void go_on(const std::string& name) { set_stopped(name, false); }
  /// The channels between the two break, and new ones do not come about.
  void cut(const std::string& one, const std::string& other);
  /// May alter each message that `from` sends, or swallow it (false).
  void intercept(const std::string& from, std::function<bool(channel::Message&)> hand);
  /// A message into every channel from one to the other, as if the first had sent it.
  void put_in(const std::string& from, const std::string& to, channel::Message message);

 private:
  friend class MemoryHub;
  friend class MemoryChannel;
  struct Link;

  Duration draw() {
    if (most_ <= Duration::zero()) return {};
    return Duration(std::uniform_int_distribution<Duration::rep>(0, most_.count())(random_));
  }
  void set_stopped(const std::string& name, bool stopped);
  std::vector<std::shared_ptr<Link>> links_where(
      const std::function<bool(const std::string&, const std::string&)>& wanted);
  void post(Link& link, int to, channel::Message message);
  void break_link(Link& link, const std::string& why, bool at_once);

  const Duration most_;
  std::mutex mutex_;  // of everything here
  std::condition_variable changed_;
  std::mt19937_64 random_;
  std::map<std::string, MemoryHub*> hubs_;
  std::map<std::string, bool> dead_, stopped_;
  std::vector<std::pair<std::string, std::string>> cuts_;
  std::map<std::string, std::function<bool(channel::Message&)>> hands_;
  std::vector<std::weak_ptr<Link>> links_;
};

struct MemoryNet::Link {
  struct Item {
    Clock::time_point due;
    channel::Message message;
  };
  struct End {
    channel::Peer who;  // at this end
    std::shared_ptr<channel::Receiver> receiver;
    std::deque<Item> queue;  // for this end
    uint64_t bytes = 0;      // in the queue
    Clock::time_point last_due{};
    bool told = false;  // closed() was or will be called
  };
  End ends[2];
  bool closed = false;
  std::string why;
};

/// End `me` of a link.
class MemoryChannel final : public channel::Channel {
 public:
  MemoryChannel(std::shared_ptr<MemoryNet> net, std::shared_ptr<MemoryNet::Link> link, int me)
      : net_(std::move(net)), link_(std::move(link)), me_(me), peer_(link_->ends[1 - me].who) {}

  bool send(channel::Message message) override {
    check<UsageError>(message.bytes.size() <= channel::kMostBytes &&
                          message.bodies.size() <= channel::kMostBodies,
                      "a message is larger than one may be");
    for (auto& body : message.bodies) {
      std::shared_ptr<void> copy(::operator new(body.bytes + 1, std::align_val_t(64)),
                                 [](void* p) { ::operator delete(p, std::align_val_t(64)); });
      if (body.bytes > 0) std::memcpy(copy.get(), body.data.get(), body.bytes);
      body.data = std::move(copy);
    }
    std::lock_guard lock(net_->mutex_);
    if (link_->closed || net_->dead_[link_->ends[me_].who.name]) return false;
    const auto hand = net_->hands_.find(link_->ends[me_].who.name);
    if (hand != net_->hands_.end() && !hand->second(message)) return true;
    net_->post(*link_, 1 - me_, std::move(message));
    return true;
  }
  uint64_t unsent() const override {
    std::lock_guard lock(net_->mutex_);
    return link_->ends[1 - me_].bytes;
  }
  std::shared_ptr<void> empty(uint64_t bytes) override {
    return {std::malloc(bytes + 1), std::free};
  }
  void close(const std::string& why) override {
    std::lock_guard lock(net_->mutex_);
    net_->break_link(*link_, why, false);
  }
  const channel::Peer& peer() const override { return peer_; }

 private:
  const std::shared_ptr<MemoryNet> net_;
  const std::shared_ptr<MemoryNet::Link> link_;
  const int me_;
  const channel::Peer peer_;
};

class MemoryHub final : public channel::Hub {
 public:
  MemoryHub(std::shared_ptr<MemoryNet> net, channel::Peer self, channel::Accept accept)
      : net_(std::move(net)), self_(std::move(self)), accept_(std::move(accept)) {
    std::lock_guard lock(net_->mutex_);
    net_->hubs_[self_.name] = this;
    net_->dead_[self_.name] = false;
  }
  ~MemoryHub() override {
    std::vector<std::shared_ptr<channel::Receiver>> dropped;  // outside of the lock
    std::lock_guard lock(net_->mutex_);
    if (net_->hubs_[self_.name] == this) net_->hubs_.erase(self_.name);
    for (auto& link : mine_) net_->break_link(*link, "worker '" + self_.name + "' is gone", false);
  }

  std::string address() const override { return self_.name; }

  std::shared_ptr<channel::Channel> open(const std::string& address, const channel::Peer& expected,
                                         std::shared_ptr<channel::Receiver> receiver,
                                         Deadline) override {
    auto link = std::make_shared<MemoryNet::Link>();
    channel::Accept accept;
    {
      std::lock_guard lock(net_->mutex_);
      for (const auto& [one, other] : net_->cuts_)
        check<PeerLost>(
            !(one == self_.name && other == address) && !(other == self_.name && one == address),
            "worker '{}' cannot be reached", address);
      const auto found = net_->hubs_.find(address);
      check<PeerLost>(
          found != net_->hubs_.end() && !net_->dead_[address] && !net_->dead_[self_.name],
          "nobody is at '{}'", address);
      check<Mismatch>(found->second->self_.generation == expected.generation,
                      "worker '{}' is of generation {}, and {} was called", address,
                      found->second->self_.generation, expected.generation);
      link->ends[0].who = self_;
      link->ends[1].who = found->second->self_;
      link->ends[0].receiver = std::move(receiver);
      accept = found->second->accept_;
      mine_.push_back(link);
      found->second->mine_.push_back(link);
      net_->links_.push_back(link);
    }
    auto theirs = std::make_shared<MemoryChannel>(net_, link, 1);
    auto ours = std::make_shared<MemoryChannel>(net_, link, 0);
    auto their_receiver = accept(theirs);
    check<PeerLost>(their_receiver != nullptr, "worker '{}' takes no calls", address);
    std::lock_guard lock(net_->mutex_);
    link->ends[1].receiver = std::move(their_receiver);
    net_->changed_.notify_all();
    return ours;
  }

  int serve(Deadline deadline) override {
    std::lock_guard turn(turn_);
    std::unique_lock lock(net_->mutex_);
    for (;;) {
      if (interrupted_) {
        interrupted_ = false;
        return 0;
      }
      int calls = 0;
      auto next = Clock::time_point::max();
      const auto now = Clock::now();
      const auto links = mine_;
      for (const auto& link : links) calls += deliver(*link, now, next, lock);
      if (calls > 0) return calls;
      if (deadline.expired()) return 0;
      if (!deadline.is_never()) next = std::min(next, now + deadline.remaining());
      if (next == Clock::time_point::max())
        net_->changed_.wait(lock);
      else
        net_->changed_.wait_until(lock, next);
    }
  }
  void interrupt() override {
    std::lock_guard lock(net_->mutex_);
    interrupted_ = true;
    net_->changed_.notify_all();
  }

 private:
  int deliver(MemoryNet::Link& link, Clock::time_point now, Clock::time_point& next,
              std::unique_lock<std::mutex>& lock) {
    int calls = 0;
    for (auto& end : link.ends) {
      if (end.who.name != self_.name || !end.receiver || net_->stopped_[self_.name]) continue;
      if (net_->dead_[self_.name]) continue;
      while (!end.queue.empty() && end.receiver) {
        if (end.queue.front().due > now) {
          next = std::min(next, end.queue.front().due);
          break;
        }
        auto item = std::move(end.queue.front());
        end.queue.pop_front();
        end.bytes -= size_of(item.message);
        const auto receiver = end.receiver;
        lock.unlock();
        receiver->received(std::move(item.message));
        ++calls;
        lock.lock();
      }
      if (link.closed && end.queue.empty() && end.receiver) {
        const auto receiver = std::exchange(end.receiver, nullptr);
        lock.unlock();
        receiver->closed(link.why);
        ++calls;
        lock.lock();
      }
    }
    if (link.closed && !link.ends[0].receiver && !link.ends[1].receiver)
      std::erase_if(mine_, [&](const auto& mine) { return mine.get() == &link; });
    return calls;
  }

 public:
  static uint64_t size_of(const channel::Message& message) {
    uint64_t bytes = message.bytes.size();
    for (const auto& body : message.bodies) bytes += body.bytes;
    return bytes;
  }

 private:
  const std::shared_ptr<MemoryNet> net_;
  const channel::Peer self_;
  const channel::Accept accept_;
  std::mutex turn_;
  std::vector<std::shared_ptr<MemoryNet::Link>> mine_;  // guarded by the net's mutex
  bool interrupted_ = false;
};

inline std::shared_ptr<channel::Hub> MemoryNet::hub(const channel::Peer& self,
                                                    channel::Accept accept) {
  return std::make_shared<MemoryHub>(shared_from_this(), self, std::move(accept));
}

inline void MemoryNet::post(Link& link, int to, channel::Message message) {
  Link::End& end = link.ends[to];
  auto due = Clock::now() + draw();
  const uint64_t bytes = MemoryHub::size_of(message);
  // Small messages keep their order; a large one is overtaken.
  const bool small = bytes <= channel::kChunk;
  if (small) due = end.last_due = std::max(due, end.last_due);
  end.bytes += bytes;
  auto place = end.queue.end();
  while (place != end.queue.begin() && std::prev(place)->due > due) --place;
  end.queue.insert(place, {due, std::move(message)});
  changed_.notify_all();
}

// The other end still gets what was sent before, unless it is at once.
inline void MemoryNet::break_link(Link& link, const std::string& why, bool at_once) {
  if (link.closed) return;
  link.closed = true;
  link.why = why;
  if (at_once)
    for (auto& end : link.ends) {
      end.queue.clear();
      end.bytes = 0;
    }
  changed_.notify_all();
}

inline std::vector<std::shared_ptr<MemoryNet::Link>> MemoryNet::links_where(
    const std::function<bool(const std::string&, const std::string&)>& wanted) {
  std::vector<std::shared_ptr<Link>> found;
  for (const auto& weak : links_)
    if (auto link = weak.lock())
      if (wanted(link->ends[0].who.name, link->ends[1].who.name) ||
          wanted(link->ends[1].who.name, link->ends[0].who.name))
        found.push_back(std::move(link));
  return found;
}

inline void MemoryNet::kill(const std::string& name) {
  std::lock_guard lock(mutex_);
  dead_[name] = true;
  for (const auto& link : links_where([&](const auto&one, const auto&) { return one == name; })) {
    const bool first = link->ends[0].who.name == name;
    link->ends[first ? 0 : 1].queue.clear();
    break_link(*link, "worker '" + name + "' is gone", false);
  }
}

inline void MemoryNet::set_stopped(const std::string& name, bool stopped) {
  std::lock_guard lock(mutex_);
  stopped_[name] = stopped;
  changed_.notify_all();
}

inline void MemoryNet::cut(const std::string& one, const std::string& other) {
  std::lock_guard lock(mutex_);
  cuts_.emplace_back(one, other);
  for (const auto& link :
       links_where([&](const auto&a, const auto&b) { return a == one && b == other; }))
    break_link(*link, "the channel was cut", true);
}

inline void MemoryNet::intercept(const std::string& from,
                                 std::function<bool(channel::Message&)> hand) {
  std::lock_guard lock(mutex_);
  hands_[from] = std::move(hand);
}

inline void MemoryNet::put_in(const std::string& from, const std::string& to,
                              channel::Message message) {
  std::lock_guard lock(mutex_);
  for (const auto& link :
       links_where([&](const auto&a, const auto&b) { return a == from && b == to; })) {
    if (link->closed) continue;
    post(*link, link->ends[0].who.name == to ? 0 : 1, message);
  }
}

}  // namespace trireme::testing
