// SPDX-License-Identifier: Apache-2.0
#include "trireme/channel/local/local_hub.h"

#include <algorithm>

#include "trireme/base/check.h"
#include "trireme/base/process/descriptor_socket.h"
#include "trireme/net/secret.h"

// Serving: what has come is taken, what waits is sent, and the thread sleeps in between. How ends
// meet is in meet.cc.
namespace trireme::channel::local {
namespace {

constexpr int kSliceMs = 100;  // of sleep; then the peers are looked after
constexpr int kSliceWithStrangerMs = 2;
// Who lets one in soon lets others in: channels are opened as a job begins.
constexpr int kSliceWhileOpeningMs = 5;
constexpr Duration kOpeningLasts = std::chrono::seconds(1);
constexpr Duration kLookEach = std::chrono::milliseconds(20);  // while there is always something
constexpr int kCallsAtOnce = 64;  // of one channel, before the next has its turn
constexpr int kBacklog = 256;
constexpr uint32_t kServesALook = 16;
constexpr Clock::time_point kNotYet{};

}  // namespace

LocalHub::LocalHub(LocalOptions options) : options_(std::move(options)) {
  check<UsageError>(!options_.self.name.empty() && options_.self.name.size() <= kTextBytes,
                    "a worker's name has 1 to {} bytes, and '{}' has {}", kTextBytes,
                    options_.self.name, options_.self.name.size());
  check<UsageError>(
      options_.most_window_bytes == 0 || options_.most_window_bytes >= BlockBook::kSharedWindow,
      "most_window_bytes is {}: 0, or at least {}, is possible", options_.most_window_bytes,
      BlockBook::kSharedWindow);
  check<UsageError>(options_.spin >= Duration::zero(), "spin is less than nothing");
  bell_ = std::make_shared<Bell>(make_bell(bell_fd_));
  address_ = {net::random_token(), net::random_token(), net::random_token(), bell_fd_.get()};
  listener_ = listen_for_descriptors_at_name(address_.socket, kBacklog);
  opening_until_ = Clock::now() + kOpeningLasts;
}

LocalHub::~LocalHub() {
  if (!mark_.is_here()) return;
  take_list();
  for (const auto& channel : channels_) channel->abandon();
}

LocalHub::Turn::Turn(LocalHub& hub, const Deadline& deadline) : hub_(hub) {
  has_ = !hub.taken_.exchange(true);
  if (!has_) {
    std::unique_lock lock(hub.turn_mutex_);
    ++hub.waiting_;
    while (!(has_ = !hub.taken_.exchange(true)) && !deadline.expired())
      hub.turn_over_.wait_for(lock,
                              std::min<Duration>(deadline.remaining(), std::chrono::hours(1)));
    --hub.waiting_;
  }
  if (has_) hub.who_serves_.store(std::this_thread::get_id(), std::memory_order_relaxed);
}

LocalHub::Turn::~Turn() {
  if (!has_) return;
  hub_.who_serves_.store({}, std::memory_order_relaxed);
  hub_.taken_ = false;
  if (hub_.waiting_ == 0) return;  // who waits counted itself before it last looked
  const std::lock_guard lock(hub_.turn_mutex_);
  hub_.turn_over_.notify_one();
}

void LocalHub::check_may_wait(const char* what) const {
  check<UsageError>(who_serves_.load(std::memory_order_relaxed) != std::this_thread::get_id(),
                    "{} waits for a peer, and a Receiver or Accept may not: it would wait for the "
                    "thread that it is on",
                    what);
}

void LocalHub::interrupt() {
  mark_.check("this hub");
  interrupted_.store(true, std::memory_order_release);
  bell_->ring();
}

void LocalHub::add(std::shared_ptr<LocalChannel> channel) {
  {
    std::lock_guard lock(list_mutex_);
    added_.push_back(std::move(channel));
  }
  any_added_.store(true, std::memory_order_release);
  bell_->ring();
}

void LocalHub::take_list() {
  std::lock_guard lock(list_mutex_);
  any_added_.store(false, std::memory_order_relaxed);
  for (auto& channel : added_) channels_.push_back(std::move(channel));
  added_.clear();
}

bool LocalHub::ready() const {
  if (interrupted_.load(std::memory_order_acquire) || any_added_.load(std::memory_order_acquire))
    return true;
  for (const auto& channel : channels_)
    if (channel->ready()) return true;
  return false;
}

/// Everybody's turn, once. `more`: something can go on at once. What comes waits for one chunk at
/// most, which the channels copy by turns.
int LocalHub::pass(bool& more) {
  if (any_added_.load(std::memory_order_acquire)) take_list();
  bool may_copy = true;
  size_t next_copy = first_to_copy_;
  for (size_t i = 0; i < channels_.size(); ++i) {
    const size_t at = (first_to_copy_ + i) % channels_.size();
    const auto pumped = channels_[at]->pump(may_copy);
    more |= pumped != LocalChannel::Pumped::nothing;
    if (pumped != LocalChannel::Pumped::chunk) continue;
    may_copy = false;
    next_copy = at + 1;
  }
  first_to_copy_ = next_copy;
  int calls = 0;
  bool any_finished = false;
  for (const auto& channel : channels_) {
    calls += channel->take(kCallsAtOnce);
    any_finished |= channel->finished();
  }
  if (any_finished)
    std::erase_if(channels_, [](const auto& channel) { return channel->finished(); });
  return calls;
}

/// Looks after what rings no bell: who knocks, who has died, what comes on the sockets.
void LocalHub::look() {
  polled_.clear();
  polled_.push_back({listener_.get(), POLLIN, 0});
  for (const auto& channel : channels_) {
    polled_.push_back({channel->socket(), POLLIN, 0});  // negative ones are passed over
    polled_.push_back({channel->pidfd(), POLLIN, 0});
  }
  if (::poll(polled_.data(), polled_.size(), 0) > 0) {
    for (size_t i = 0; i < channels_.size(); ++i) {
      const pollfd &socket = polled_[1 + 2 * i], &process = polled_[2 + 2 * i];
      channels_[i]->look(socket.revents & POLLIN,
                         (socket.revents & (POLLHUP | POLLERR)) || (process.revents & POLLIN));
    }
    if (polled_[0].revents & POLLIN) {
      accept_strangers();
      opening_until_ = Clock::now() + kOpeningLasts;
    }
  }
  for (auto it = strangers_.begin(); it != strangers_.end();)
    it = hear(*it) && !it->patience.expired() ? std::next(it) : strangers_.erase(it);
  next_look_ = Clock::now() + std::min<Duration>(kLookEach, std::chrono::milliseconds(slice_ms()));
}

/// How long to sleep before the next look.
int LocalHub::slice_ms() const {
  if (!strangers_.empty()) return kSliceWithStrangerMs;
  return Clock::now() < opening_until_ ? kSliceWhileOpeningMs : kSliceMs;
}

int LocalHub::serve(Deadline deadline) {
  mark_.check("this hub");
  check_may_wait("serve()");
  const Turn turn(*this, deadline);
  if (!turn) return 0;
  // The clock is not read for each message.
  if (++serves_ % kServesALook == 0 && Clock::now() >= next_look_) look();
  for (Clock::time_point spin_until = kNotYet;;) {
    bool more = false;
    if (const int calls = pass(more)) return calls;
    if (interrupted_.exchange(false, std::memory_order_acq_rel)) return 0;
    if (deadline.expired()) return 0;
    if (Clock::now() >= next_look_) {
      look();
      continue;  // it may have found something
    }
    if (more) {
      spin_until = kNotYet;
      continue;
    }
    if (spin_until == kNotYet)
      spin_until = Clock::now() + std::min<Duration>(options_.spin, std::chrono::hours(1));
    bool found = false;
    while (!found && Clock::now() < spin_until && !deadline.expired() && Clock::now() < next_look_)
      for (int i = 0; i < 64 && !found; ++i, ::trireme::local::cpu_relax()) found = ready();
    if (found || Clock::now() < spin_until) continue;
    bell_->sleep_unless([this] { return ready(); }, std::max(1, deadline.poll_ms(slice_ms())));
    if (!ready()) next_look_ = kNotYet;  // somebody may have knocked
  }
}

}  // namespace trireme::channel::local

namespace trireme::channel {

std::unique_ptr<Hub> local_hub(LocalOptions options) {
  return std::make_unique<local::LocalHub>(std::move(options));
}

}  // namespace trireme::channel
