// SPDX-License-Identifier: Apache-2.0
#include "trireme/comm/gloo/messenger.h"

#include <ATen/ops/from_blob.h>
#include <gloo/transport/tcp/unbound_buffer.h>
#include <pthread.h>
#include <signal.h>

#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include "trireme/base/check.h"
#include "trireme/comm/c10d/store.h"
#include "trireme/comm/gloo/connecting.h"
#include "trireme/comm/gloo/loop.h"
#include "trireme/comm/gloo/tags.h"
#include "trireme/comm/group.h"

namespace trireme::detail {

using c10d::ProcessGroupGloo;

struct Flight {
  void* data = nullptr;
  size_t bytes = 0;
  int peer = -1, tag = 0;
  bool sends = false, soon = false;
  bool late = false;    // no longer waited for
  bool posted = false;  // then one of the two is set, or the error
  c10::intrusive_ptr<ProcessGroupGloo::SendWork> sending;
  c10::intrusive_ptr<ProcessGroupGloo::RecvWork> receiving;
  std::string error;
  c10d::Work& work() {
    return sending ? static_cast<c10d::Work&>(*sending) : static_cast<c10d::Work&>(*receiving);
  }
};

struct Messenger::Torch {
  std::shared_ptr<::gloo::transport::Device> device;
  std::shared_ptr<GlooLoop> loop;  // of the device; null: every thread posts by itself
  c10::intrusive_ptr<ProcessGroupGloo> group;
};

namespace {

// Gloo's waits must not end by themselves, because we keep the deadlines. One year, since Gloo adds
// it to the clock.
constexpr std::chrono::milliseconds kNeverMs = std::chrono::hours(24 * 365);

/// Gloo writes to connections that may be closed. Threads started meanwhile never get the signal.
class NoSigpipe {
 public:
  NoSigpipe() {
    ::sigemptyset(&pipe_);
    ::sigaddset(&pipe_, SIGPIPE);
    ::pthread_sigmask(SIG_BLOCK, &pipe_, &before_);
    if (::sigismember(&before_, SIGPIPE)) return;
    blocked_ = true;
    sigset_t pending;
    ::sigpending(&pending);
    was_pending_ = ::sigismember(&pending, SIGPIPE);
  }
  ~NoSigpipe() {
    if (!blocked_) return;
    sigset_t pending;
    ::sigpending(&pending);
    const timespec now{};
    if (!was_pending_ && ::sigismember(&pending, SIGPIPE)) ::sigtimedwait(&pipe_, nullptr, &now);
    ::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  NoSigpipe(const NoSigpipe&) = delete;

 private:
  sigset_t pipe_, before_;
  bool blocked_ = false, was_pending_ = false;
};

// Gloo can only wait, and a wait that times out closes its connections. Whether a message is
// complete is stored in its buffer, which derived classes can access.
struct SendWorkView : ProcessGroupGloo::SendWork {
  static ::gloo::transport::UnboundBuffer* buffer(ProcessGroupGloo::SendWork& w) {
    return (w.*(&SendWorkView::buffer_)).get();
  }
};
struct RecvWorkView : ProcessGroupGloo::RecvWork {
  static ::gloo::transport::UnboundBuffer* buffer(ProcessGroupGloo::RecvWork& w) {
    return (w.*(&RecvWorkView::buffer_)).get();
  }
};
struct BufferView : ::gloo::transport::tcp::UnboundBuffer {
  using Base = ::gloo::transport::tcp::UnboundBuffer;
  static bool is_settled(::gloo::transport::UnboundBuffer* buffer, bool sending) {
    auto* b = static_cast<Base*>(buffer);
    std::lock_guard<std::mutex> lock(b->*(&BufferView::m_));
    if (b->*(&BufferView::ex_) != nullptr) return true;
    return (sending ? b->*(&BufferView::sendCompletions_) : b->*(&BufferView::recvCompletions_)) >
           0;
  }
};

}  // namespace

Messenger::Messenger(std::unique_ptr<C10dStore> store, int rank, int size, const std::string& host,
                     const std::string& interface, Duration connect_limit, Connecting& connecting)
    : torch_(std::make_unique<Torch>()), rank_(rank), size_(size) {
  NoSigpipe no_sigpipe;
  torch_->device = interface.empty() ? ProcessGroupGloo::createDeviceForHostname(host)
                                     : ProcessGroupGloo::createDeviceForInterface(interface);
  torch_->loop = GlooLoop::of(torch_->device);
  connect(std::move(store), rank, size, connect_limit, connecting);
}

Messenger::Messenger(std::unique_ptr<C10dStore> store, int rank, int size, const Messenger& parent,
                     Duration connect_limit, Connecting& connecting)
    : torch_(std::make_unique<Torch>()), rank_(rank), size_(size) {
  NoSigpipe no_sigpipe;
  torch_->device = parent.torch_->device;
  torch_->loop = parent.torch_->loop;
  connect(std::move(store), rank, size, connect_limit, connecting);
}

void Messenger::connect(std::unique_ptr<C10dStore> store, int rank, int size, Duration limit,
                        Connecting& connecting) {
  // Gloo waits five times this for a connection.
  auto options = ProcessGroupGloo::Options::create(
      std::max(std::chrono::milliseconds(1),
               std::chrono::duration_cast<std::chrono::milliseconds>(limit / 5)));
  options->devices.push_back(connecting.on(torch_->device));
  options->threads = 1;  // for collectives of its own, of which there are none
  // Not reclaim(), which expects a handle that release() left; the store would be destroyed too
  // early.
  C10dStore& ours = *store;
  const c10::intrusive_ptr<c10d::Store> shared{std::unique_ptr<c10d::Store>(std::move(store))};
  torch_->group = c10::make_intrusive<ProcessGroupGloo>(shared, rank, size, options);
  ours.close();
}

Messenger::~Messenger() {
  NoSigpipe no_sigpipe;
  if (torch_->loop) torch_->loop->forget(this);
  torch_.reset();
}

void Messenger::post(Flight& flight) try {
  std::vector<at::Tensor> tensor{
      at::from_blob(flight.data, {static_cast<int64_t>(flight.bytes)}, at::kByte)};
  if (flight.sends)
    flight.sending = c10::static_intrusive_pointer_cast<ProcessGroupGloo::SendWork>(
        torch_->group->send(tensor, flight.peer, flight.tag));
  else
    flight.receiving = c10::static_intrusive_pointer_cast<ProcessGroupGloo::RecvWork>(
        flight.peer == kAnySource ? torch_->group->recvAnysource(tensor, flight.tag)
                                  : torch_->group->recv(tensor, flight.peer, flight.tag));
  flight.posted = true;
} catch (const std::exception& e) {
  flight.error = e.what();
  flight.posted = true;
}

namespace {

Message flight_of(bool sends, void* data, size_t bytes, int peer, int tag) {
  auto flight = std::make_shared<Flight>();
  flight->data = data;
  flight->bytes = bytes;
  flight->peer = peer;
  flight->tag = tag;
  flight->sends = sends;
  return flight;
}
void check_posted(const Flight& flight) {
  if (!flight.sending && !flight.receiving) throw MessageLost(flight.peer, flight.error);
}

}  // namespace

Message Messenger::send(const void* from, size_t bytes, int to, int tag) {
  return now(flight_of(true, const_cast<void*>(from), bytes, to, tag));
}

Message Messenger::recv(void* to, size_t bytes, int from, int tag) {
  return now(flight_of(false, to, bytes, from, tag));
}

Message Messenger::send_soon(const void* from, size_t bytes, int to, int tag) {
  return soon(flight_of(true, const_cast<void*>(from), bytes, to, tag));
}

Message Messenger::recv_soon(void* to, size_t bytes, int from, int tag) {
  return soon(flight_of(false, to, bytes, from, tag));
}

Message Messenger::now(Message message) {
  if (torch_->loop) {
    hand_over(&message, 1);
    return message;
  }
  NoSigpipe no_sigpipe;
  post(*message);
  check_posted(*message);
  return message;
}

Message Messenger::soon(Message message) {
  if (!torch_->loop) return now(std::move(message));
  message->soon = true;
  soon_.push_back(message);
  return message;
}

void Messenger::hand_over(const Message* first, size_t count) {
  bool ring;
  {
    std::lock_guard lock(mutex_);
    ring = handed_.empty();
    handed_.insert(handed_.end(), first, first + count);
  }
  if (ring) torch_->loop->run(this, [this] { post_handed(); });
}

// Holds the lock: once revoke() has had it, nothing is posted any more, and memory may be freed. On
// this thread no other thread holds a connection's lock for long, or waits for this thread while it
// does: everything is posted here, and only revoke() closes connections, when nothing is posted.
void Messenger::post_handed() {
  {
    std::lock_guard lock(mutex_);
    if (!revoked_)
      for (Message& flight : handed_) post(*flight);
    handed_.clear();
  }
  posted_.notify_all();
}

// A wait of Gloo's own that times out would close connections, on the waiting thread.
void Messenger::end_late_waits() {
  std::lock_guard lock(mutex_);
  alarm_ = Clock::time_point::max();
  const auto now = Clock::now();
  for (auto& [flight, until] : waiting_) {
    if (until <= now) {
      flight->late = true;
      flight->work().abort();
    } else {
      look_at(until);
    }
  }
}

void Messenger::look_at(Clock::time_point when) {
  if (!torch_->loop || when >= alarm_) return;
  alarm_ = when;
  torch_->loop->run_at(when, this, [this] { end_late_waits(); });
}

bool Messenger::waits_again() const { return torch_->loop != nullptr; }

Messenger::Outcome Messenger::wait(const Message& message, Deadline deadline) {
  if (message->soon && !soon_.empty()) {
    hand_over(soon_.data(), soon_.size());
    soon_.clear();
  }
  {
    std::unique_lock lock(mutex_);
    posted_.wait(lock, [&] { return revoked_ || message->posted; });
    if (revoked_) return Outcome::revoked;
    check_posted(*message);
    const auto until =
        deadline.is_never() ? Clock::time_point::max() : Clock::now() + deadline.remaining();
    message->late = false;
    waiting_.emplace(message.get(), until);
    look_at(until);
  }
  auto done = [&] {
    std::lock_guard lock(mutex_);
    waiting_.erase(message.get());
    return revoked_;
  };
  const auto left =
      deadline.is_never() || torch_->loop
          ? kNeverMs
          : std::min(kNeverMs, std::chrono::ceil<std::chrono::milliseconds>(deadline.remaining()));
  try {
    // Zero would be Gloo's own limit.
    const bool complete = message->work().wait(std::max(left, std::chrono::milliseconds(1)));
    const bool revoked = done();
    if (complete) return Outcome::complete;
    return message->late && !revoked ? Outcome::late : Outcome::revoked;
  } catch (const std::exception& e) {
    if (done()) return Outcome::revoked;
    if (!torch_->loop && deadline.expired()) return Outcome::late;
    throw MessageLost(message->peer, e.what());
  }
}

bool Messenger::is_settled(const Message& message) {
  {
    std::lock_guard lock(mutex_);
    if (revoked_) return true;
    if (!message->posted) return false;
    if (!message->error.empty()) return true;
  }
  return message->sending
             ? BufferView::is_settled(SendWorkView::buffer(*message->sending), true)
             : BufferView::is_settled(RecvWorkView::buffer(*message->receiving), false);
}

int Messenger::source(const Message& message) { return message->work().sourceRank(); }

// A wait of Gloo's that times out closes all connections of its group and notifies waiting threads,
// but not those whose bytes are half transferred, so they are notified first.
void Messenger::revoke() {
  {
    std::lock_guard lock(mutex_);
    if (std::exchange(revoked_, true)) return;
    for (auto& [flight, until] : waiting_) flight->work().abort();
  }
  posted_.notify_all();
  char byte;
  for (int peer = 0; peer < size_; ++peer) {
    if (peer == rank_) continue;
    NoSigpipe no_sigpipe;
    Message nobodys = flight_of(false, &byte, 1, peer, kNobodysTag);
    post(*nobodys);
    try {
      if (nobodys->receiving) nobodys->receiving->wait(std::chrono::milliseconds(1));
    } catch (const std::exception&) {  // closed
    }
  }
}

}  // namespace trireme::detail
