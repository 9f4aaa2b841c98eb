// SPDX-License-Identifier: Apache-2.0
#include "trireme/comm/gloo/messenger.h"

#include <ATen/ops/from_blob.h>
#include <gloo/transport/tcp/unbound_buffer.h>
#include <pthread.h>
#include <signal.h>

#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include "trireme/base/check.h"
#include "trireme/comm/c10d/store.h"
#include "trireme/comm/gloo/tags.h"
#include "trireme/comm/group.h"

namespace trireme::detail {

using c10d::ProcessGroupGloo;

struct Flight {
  c10::intrusive_ptr<ProcessGroupGloo::SendWork> sending;  // one of them
  c10::intrusive_ptr<ProcessGroupGloo::RecvWork> receiving;
  int peer = -1;
  char unused = 0;
  c10d::Work& work() {
    return sending ? static_cast<c10d::Work&>(*sending) : static_cast<c10d::Work&>(*receiving);
  }
};

struct Messenger::Torch {
  std::shared_ptr<::gloo::transport::Device> device;
  c10::intrusive_ptr<ProcessGroupGloo> group;
};

namespace {

// No wait of Gloo's ends by itself: deadlines are ours. A year, since Gloo adds it to the clock.
constexpr std::chrono::milliseconds kNeverMs = std::chrono::hours(24 * 365);

/// Gloo writes to connections that may be closed. Threads that are started meanwhile never get the
/// signal.
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

// Gloo can only wait, and a wait that is over time ends its connections. Whether a message is there
// is written in its buffer, which it lets derived classes see.
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
                     const std::string& interface, Duration connect_limit)
    : torch_(std::make_unique<Torch>()), rank_(rank), size_(size) {
  NoSigpipe no_sigpipe;
  torch_->device = interface.empty() ? ProcessGroupGloo::createDeviceForHostname(host)
                                     : ProcessGroupGloo::createDeviceForInterface(interface);
  connect(std::move(store), rank, size, connect_limit);
}

Messenger::Messenger(std::unique_ptr<C10dStore> store, int rank, int size, const Messenger& parent,
                     Duration connect_limit)
    : torch_(std::make_unique<Torch>()), rank_(rank), size_(size) {
  NoSigpipe no_sigpipe;
  torch_->device = parent.torch_->device;
  connect(std::move(store), rank, size, connect_limit);
}

void Messenger::connect(std::unique_ptr<C10dStore> store, int rank, int size, Duration limit) {
  // Gloo waits five times this for a connection.
  auto options = ProcessGroupGloo::Options::create(
      std::max(std::chrono::milliseconds(1),
               std::chrono::duration_cast<std::chrono::milliseconds>(limit / 5)));
  options->devices.push_back(torch_->device);
  options->threads = 1;  // for collectives of its own, of which there are none
  torch_->group = c10::make_intrusive<ProcessGroupGloo>(
      c10::intrusive_ptr<c10d::Store>::reclaim(store.release()), rank, size, options);
}

Messenger::~Messenger() {
  NoSigpipe no_sigpipe;
  torch_.reset();
}

Message Messenger::send(const void* from, size_t bytes, int to, int tag) {
  NoSigpipe no_sigpipe;
  std::vector<at::Tensor> tensor{
      at::from_blob(const_cast<void*>(from), {static_cast<int64_t>(bytes)}, at::kByte)};
  auto flight = std::make_shared<Flight>();
  flight->peer = to;
  try {
    flight->sending = c10::static_intrusive_pointer_cast<ProcessGroupGloo::SendWork>(
        torch_->group->send(tensor, to, tag));
  } catch (const std::exception& e) {
    throw MessageLost(to, e.what());
  }
  return flight;
}

Message Messenger::recv(void* to, size_t bytes, int from, int tag) {
  NoSigpipe no_sigpipe;
  std::vector<at::Tensor> tensor{at::from_blob(to, {static_cast<int64_t>(bytes)}, at::kByte)};
  auto flight = std::make_shared<Flight>();
  flight->peer = from;
  try {
    flight->receiving = c10::static_intrusive_pointer_cast<ProcessGroupGloo::RecvWork>(
        from == kAnySource ? torch_->group->recvAnysource(tensor, tag)
                           : torch_->group->recv(tensor, from, tag));
  } catch (const std::exception& e) {
    throw MessageLost(from, e.what());
  }
  return flight;
}

Messenger::Outcome Messenger::wait(const Message& message, Deadline deadline) {
  {
    std::lock_guard lock(mutex_);
    if (revoked_) return Outcome::revoked;
    waiting_.insert(message.get());
  }
  auto done = [&] {
    std::lock_guard lock(mutex_);
    waiting_.erase(message.get());
    return revoked_;
  };
  const auto left =
      deadline.is_never()
          ? kNeverMs
          : std::min(kNeverMs, std::chrono::ceil<std::chrono::milliseconds>(deadline.remaining()));
  try {
    // Zero would be Gloo's own limit.
    const bool complete = message->work().wait(std::max(left, std::chrono::milliseconds(1)));
    done();
    return complete ? Outcome::complete : Outcome::revoked;
  } catch (const std::exception& e) {
    if (done()) return Outcome::revoked;
    if (deadline.expired()) return Outcome::late;
    throw MessageLost(message->peer, e.what());
  }
}

bool Messenger::is_settled(const Message& message) {
  {
    std::lock_guard lock(mutex_);
    if (revoked_) return true;
  }
  return message->sending
             ? BufferView::is_settled(SendWorkView::buffer(*message->sending), true)
             : BufferView::is_settled(RecvWorkView::buffer(*message->receiving), false);
}

int Messenger::source(const Message& message) { return message->work().sourceRank(); }

// A wait of Gloo's that is over time closes all connections of its group, and tells those who wait;
// but not those whose bytes are half way, so they are told first.
void Messenger::revoke() {
  {
    std::lock_guard lock(mutex_);
    if (std::exchange(revoked_, true)) return;
    for (Flight* flight : waiting_) flight->work().abort();
  }
  char byte;
  for (int peer = 0; peer < size_; ++peer) {
    if (peer == rank_) continue;
    try {
      Message nobodys = recv(&byte, 1, peer, kNobodysTag);
      nobodys->work().wait(std::chrono::milliseconds(1));
    } catch (const std::exception&) {  // closed
    }
  }
}

}  // namespace trireme::detail
