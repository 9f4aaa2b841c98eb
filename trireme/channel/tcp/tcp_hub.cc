// SPDX-License-Identifier: Apache-2.0
#include "trireme/channel/tcp/tcp_hub.h"

#include <algorithm>
#include <utility>

#include "trireme/base/check.h"
#include "trireme/base/log.h"
#include "trireme/net/link.h"

namespace trireme::channel::tcp {
namespace {

constexpr int kLongestSleepMs = 500;  // net::kLinkCheckEvery

std::vector<net::Listener> one(net::Listener listener) {
  std::vector<net::Listener> out;
  out.push_back(std::move(listener));
  return out;
}

}  // namespace

TcpHub::TcpHub(TcpOptions options)
    : options_(std::move(options)), road_(std::make_shared<TcpRoad>()) {
  check<UsageError>(options_.self.name.size() <= kMostName,
                    "a worker's name of {} bytes; at most {}", options_.self.name.size(),
                    kMostName);
  const auto& host = options_.at.address.host;
  check<UsageError>(!options_.at.is_unix() && host != "0.0.0.0" && host != "::",
                    "a worker's hub at {}: its peers look for it there, so name the interface of "
                    "this host that they reach",
                    options_.at.text());
  net::Server::Options door{options_.credentials, "worker", options_.max_channels,
                            options_.max_pending, options_.handshake_limit};
  server_ = std::make_unique<net::Server>(door_, std::move(door), one(net::Listener(options_.at)),
                                          static_cast<net::ServerUser&>(*this));
  address_ = server_->endpoints().front().text();
  road_->loop.watch(door_.fd(), EPOLLIN, this);
}

TcpHub::~TcpHub() {
  for (const auto& channel : all_channels())
    channel->drop(fmt::format("worker '{}' has left", options_.self.name));
  server_->end();
  std::vector<std::shared_ptr<TcpChannel>> untold;  // they hold the road, and it would hold them
  std::lock_guard lock(road_->mutex);
  untold.swap(road_->to_end);
}

size_t TcpHub::channels() const {
  std::lock_guard lock(road_->mutex);
  return road_->channels.size();
}

std::vector<std::shared_ptr<TcpChannel>> TcpHub::all_channels() const {
  std::lock_guard lock(road_->mutex);
  return {road_->channels.begin(), road_->channels.end()};
}

void TcpHub::proved(net::ServerConnection& connection) {
  server_->set_limit(connection, Deadline::after(options_.handshake_limit));
}

/// What we say to who is there.
Greeting TcpHub::greeting_for(const Greeting& theirs) const {
  Greeting ours;
  ours.self = options_.self;
  if (theirs.version != kChannelVersion) {
    ours.verdict = Verdict::other_version;
    ours.text = fmt::format("worker '{}' speaks version {} of channels and this one version {}",
                            ours.self.name, kChannelVersion, theirs.version);
  } else if (theirs.self.generation != ours.self.generation) {
    ours.verdict = Verdict::other_generation;
    ours.text =
        fmt::format("worker '{}' is of generation {} and worker '{}' of generation {}",
                    ours.self.name, ours.self.generation, theirs.self.name, theirs.self.generation);
  } else if (channels() >= options_.max_channels) {
    ours.verdict = Verdict::not_wanted;
    ours.text = fmt::format("worker '{}' has {} channels, the most that it takes", ours.self.name,
                            options_.max_channels);
  }
  return ours;
}

void TcpHub::came(net::ServerConnection& connection, net::Frame frame) {
  check<Corrupt>(frame.type == static_cast<uint16_t>(ChannelFrame::greeting),
                 "a frame of type {} before a greeting", frame.type);
  const Greeting theirs = decode_greeting(frame.payload);
  const Greeting ours = greeting_for(theirs);
  if (ours.verdict != Verdict::welcome) {
    log_warn("the worker at {} refused {}: {}", address_, connection.source, ours.text);
    server_->start_closing(connection);
    server_->reply(connection, net::encode_frame(frame.type, encode_greeting(ours)));
    return;
  }
  auto taken = server_->take(connection);
  if (!taken.early.empty()) return;  // who speaks before he is answered is none of ours
  const std::string peer = taken.socket.peer();
  try {
    adopt(std::move(taken), theirs.self);
  } catch (const std::exception& error) {  // no memory, no room in epoll
    log_warn("the worker at {} lost {}: {}", address_, peer, error.what());
  }
}

void TcpHub::adopt(net::Server::Taken taken, const Peer& peer) {
  auto channel =
      std::make_shared<TcpChannel>(road_, std::move(taken.socket), std::move(taken.session), peer);
  Greeting ours;
  ours.self = options_.self;
  auto receiver = options_.accept ? options_.accept(channel) : nullptr;
  if (receiver) return channel->start(std::move(receiver), encode_greeting(ours));
  ours.verdict = Verdict::not_wanted;
  ours.text =
      fmt::format("worker '{}' takes no channel from worker '{}'", ours.self.name, peer.name);
  channel->start(nullptr, encode_greeting(ours));
  channel->close(ours.text);
}

void TcpHub::check_caller(const char* what) const {
  road_->made_in.check("this hub");
  const auto here = std::this_thread::get_id();
  check<UsageError>(serves_ != here && at_door_ != here,
                    "a receiver of worker '{}' {} while it is called: it may send and close, and "
                    "no more",
                    options_.self.name, what);
}

bool TcpHub::somebody_serves() {
  std::lock_guard lock(turn_mutex_);
  return serving_;
}

void TcpHub::tend_door() {
  std::lock_guard lock(door_mutex_);
  at_door_ = std::this_thread::get_id();
  try {
    door_.turn(0);
    server_->check_limits();
  } catch (const std::exception& error) {
    log_error("the worker at {} lets nobody in: {}", address_, error.what());
  }
  at_door_ = std::thread::id();
}

int TcpHub::serve(Deadline deadline) {
  check_caller("serves");
  std::unique_lock lock(turn_mutex_);
  if (!serving_ && heard_ != interrupts_) {  // nobody was there to hear it
    heard_ = interrupts_;
    return 0;
  }
  const uint64_t interrupts = interrupts_;
  while (serving_) {
    if (interrupts != interrupts_ || deadline.expired()) return 0;
    turn_.wait_for(lock, std::chrono::milliseconds(deadline.poll_ms(60'000)));
  }
  serving_ = true;
  lock.unlock();
  serves_ = std::this_thread::get_id();
  const int calls = serve_alone(deadline, interrupts);
  serves_ = std::thread::id();
  lock.lock();
  serving_ = false;
  if (calls == 0) heard_ = interrupts_;
  turn_.notify_one();
  return calls;
}

int TcpHub::serve_alone(Deadline deadline, uint64_t interrupts) {
  const Deadline spin_until = Deadline::after(options_.spin);
  bool spin = options_.spin > Duration::zero();
  road_->calls = 0;
  while (true) {
    spin = spin && !spin_until.expired();
    const int wait =
        std::min(deadline.poll_ms(kLongestSleepMs), next_look_.poll_ms(kLongestSleepMs));
    const bool told = road_->any_to_end;
    road_->loop.turn(spin || told || interrupts_ != interrupts ? 0 : wait);
    tend();
    if (road_->calls > 0) return road_->calls;
    if (interrupts_ != interrupts || deadline.expired()) return 0;
  }
}

/// After each turn: what is not news of a socket.
void TcpHub::tend() {
  if (road_->any_to_end) tell_ended();
  if (next_look_.is_never()) next_look_ = Deadline::after(net::kLinkCheckEvery);
  if (!next_look_.expired()) return;
  next_look_ = Deadline::after(net::kLinkCheckEvery);
  for (const auto& channel : all_channels()) {
    channel->check_link();
    channel->linger();
  }
  tend_door();
}

void TcpHub::tell_ended() {
  std::vector<std::shared_ptr<TcpChannel>> ended;
  {
    std::lock_guard lock(road_->mutex);
    ended.swap(road_->to_end);
    road_->any_to_end = false;
  }
  for (const auto& channel : ended) channel->tell_closed();
}

void TcpHub::interrupt() {
  {
    std::lock_guard lock(turn_mutex_);
    ++interrupts_;
  }
  turn_.notify_all();
  road_->loop.wake();
}

}  // namespace trireme::channel::tcp

namespace trireme::channel {
namespace {

/// Its owner's: in a forked child, where all of it is the parent's, nothing is touched.
class OwnedTcpHub final : public Hub {
 public:
  explicit OwnedTcpHub(TcpOptions options)
      : hub_(std::make_unique<tcp::TcpHub>(std::move(options))) {}
  ~OwnedTcpHub() override {
    if (!made_in_.is_here()) [[maybe_unused]]
      tcp::TcpHub* const of_the_parent = hub_.release();
  }
  std::string address() const override { return hub_->address(); }
  std::shared_ptr<Channel> open(const std::string& address, const Peer& expected,
                                std::shared_ptr<Receiver> receiver, Deadline deadline) override {
    return hub_->open(address, expected, std::move(receiver), deadline);
  }
  int serve(Deadline deadline) override { return hub_->serve(deadline); }
  void interrupt() override { hub_->interrupt(); }

 private:
  std::unique_ptr<tcp::TcpHub> hub_;
  const ProcessMark made_in_;
};

}  // namespace

std::unique_ptr<Hub> tcp_hub(TcpOptions options) {
  return std::make_unique<OwnedTcpHub>(std::move(options));
}

}  // namespace trireme::channel
