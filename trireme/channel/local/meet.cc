// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "trireme/base/check.h"
#include "trireme/base/log.h"
#include "trireme/base/process/descriptor_socket.h"
#include "trireme/channel/local/local_hub.h"
#include "trireme/net/printable.h"

// How two ends meet: who opens, and who lets in.
namespace trireme::channel::local {
namespace {

constexpr size_t kMostStrangers = 64;
constexpr size_t kMostEarly = 512;                       // letters
constexpr Duration kPatience = std::chrono::seconds(2);  // with one who says nothing
constexpr int kStrangersAtOnce = 64;
constexpr char kNobodyServes[] = "worker '{}' did not answer in time: does a thread serve its hub?";

bool same_token(const Letter& letter, const std::string& token) {
  return token.size() == kTokenBytes && std::memcmp(letter.token, token.data(), kTokenBytes) == 0;
}

UniqueFd pidfd_of(pid_t pid) {
  // A thread of this process does not die alone.
  if (pid <= 0 || pid == ::getpid()) return {};
  return UniqueFd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
}

/// The magic and version in a peer's memory, where it may change them at any time.
template <class Shared>
void check_head(const ::trireme::local::Window& memory, uint64_t magic, const std::string& whose) {
  const auto* shared = reinterpret_cast<const volatile Shared*>(memory.base());
  check<Corrupt>(memory.bytes() == sizeof(Shared) && shared->magic == magic &&
                     shared->version == kSharedVersion,
                 "what {} shares is not what a hub shares", whose);
}

template <class Shared>
::trireme::local::Window make_shared_memory(uint64_t magic, UniqueFd& fd) {
  ::trireme::local::Window memory = ::trireme::local::Window::create(sizeof(Shared), fd);
  auto* shared = reinterpret_cast<Shared*>(memory.base());  // all zeros
  shared->magic = magic;
  shared->version = kSharedVersion;
  return memory;
}

}  // namespace

::trireme::local::Window make_lane(UniqueFd& fd) {
  ::trireme::local::Window memory = make_shared_memory<Lane>(kLaneMagic, fd);
  reinterpret_cast<Lane*>(memory.base())->bytes = sizeof(Lane);
  return memory;
}

::trireme::local::Window make_bell(UniqueFd& fd) {
  return make_shared_memory<BellMemory>(kBellMagic, fd);
}

Letter LocalHub::letter(LetterKind kind, const std::string& token) const {
  Letter letter;
  letter.kind = kind;
  letter.generation = options_.self.generation;
  letter.set_text(options_.self.name);
  std::memcpy(letter.token, token.data(), std::min(token.size(), kTokenBytes));
  return letter;
}

/// Our lane and our doorbell. False: the other end is gone, or does not read until the deadline.
bool LocalHub::send_both(int socket, const Letter& first, const UniqueFd& lane,
                         const Deadline& deadline) {
  Letter bell = letter(LetterKind::bell, "");
  bell.bytes = sizeof(BellMemory);
  for (const auto& [letter, fd] : {std::pair{&first, lane.get()}, {&bell, bell_fd_.get()}})
    while (!send_letter(socket, *letter, fd)) {
      if (errno != EAGAIN && errno != EINTR && errno != ETOOMANYREFS) return false;
      if (deadline.expired()) return false;
      pollfd room{socket, POLLOUT, 0};
      ::poll(&room, 1, deadline.poll_ms(10));
    }
  return true;
}

std::shared_ptr<LocalChannel> LocalHub::join(UniqueFd socket, pid_t pid, const Letter& hello,
                                             ::trireme::local::Window lane_out,
                                             const UniqueFd& lane_fd, const Letter& bell,
                                             const UniqueFd& bell_fd) {
  const std::string name = net::printable(hello.name()), whose = fmt::format("worker '{}'", name);
  Joined joined{{name, hello.generation},
                pid,
                std::move(socket),
                pidfd_of(pid),
                std::move(lane_out),
                map_shared(lane_fd, hello.bytes, whose),
                map_shared(bell_fd, bell.bytes, whose),
                bell_,
                options_.most_window_bytes};
  check_head<Lane>(joined.lane_in, kLaneMagic, whose);
  check_head<BellMemory>(joined.peer_bell, kBellMagic, whose);
  return std::make_shared<LocalChannel>(std::move(joined));
}

// ── who opens ──

UniqueFd LocalHub::reach(const LocalAddress& to, const Peer& expected, const Deadline& deadline) {
  while (true) {
    UniqueFd socket = connect_for_descriptors_at_name(to.socket);
    if (socket) {
      check<PeerLost>(descriptor_peer_of(socket.get()) >= 0,
                      "another user's process listens where worker '{}' should", expected.name);
      return socket;
    }
    const int code = errno;
    check<PeerLost>(code != ECONNREFUSED,
                    "nobody listens at the address of worker '{}': it is gone, or in another "
                    "network namespace",
                    expected.name);
    check<ResourceError>(code == EAGAIN || code == EINTR, "cannot reach worker '{}': {}",
                         expected.name, errno_text(code));
    check<Timeout>(!deadline.expired(), kNobodyServes, expected.name);
    ::poll(nullptr, 0, deadline.poll_ms(5));
  }
}

/// Rings at the hub that we have knocked at, which may sleep and does not hear its socket then. Its
/// doorbell is among the descriptors of its process, where processes of one user may look; who may
/// not, as in a sandbox, is heard when the other one next looks by itself.
void LocalHub::wake(const LocalAddress& to, pid_t pid) const try {
  if (pid <= 0) return;
  const UniqueFd fd(::open(fmt::format("/proc/{}/fd/{}", pid, to.bell).c_str(),
                           O_RDWR | O_CLOEXEC | O_NOCTTY | O_NONBLOCK));
  if (!fd || !fault_in_memory(fd.get()).empty()) return;
  ::trireme::local::Window memory = map_shared(fd, sizeof(BellMemory), "the hub");
  check_head<BellMemory>(memory, kBellMagic, "the hub");
  Bell(std::move(memory)).ring();
} catch (const Error& error) {
  log_debug("a hub was not woken: {}", error.what());
}

/// The next letter of the hub that we knock at, but for those of windows, which become `early`: who
/// was given the channel there may use it before we are let in. Meanwhile others may knock here.
ReceivedLetter LocalHub::await_letter(int socket, const Peer& expected, const Deadline& deadline,
                                      std::vector<ReceivedLetter>& early) {
  while (true) {
    ReceivedLetter got = receive_letter(socket);
    check<PeerLost>(got.state != ReceivedLetter::closed && got.state != ReceivedLetter::damaged,
                    "worker '{}' did not answer: it is gone, or is no worker", expected.name);
    check<Mismatch>(got.state != ReceivedLetter::other_version,
                    "worker '{}' speaks version {} of channels through shared memory, this one "
                    "version {}: use one build",
                    expected.name, got.content.version, kSharedVersion);
    check<ResourceError>(!got.lost_fd, "this process may open no more files: raise 'ulimit -n'");
    if (got.state == ReceivedLetter::letter) {
      if (!got.is_of_windows()) return got;
      check<PeerLost>(early.size() < kMostEarly, "worker '{}' shares windows and does not answer",
                      expected.name);
      early.push_back(std::move(got));
      continue;
    }
    check<Timeout>(!deadline.expired(), kNobodyServes, expected.name);
    bool served = false;
    if (const Turn turn(*this, Deadline::after(Duration::zero())); turn) {
      look();
      served = !strangers_.empty();
    }
    pollfd answer{socket, POLLIN, 0};
    ::poll(&answer, 1, deadline.poll_ms(served ? 1 : 5));
  }
}

std::shared_ptr<Channel> LocalHub::open(const std::string& address, const Peer& expected,
                                        std::shared_ptr<Receiver> receiver, Deadline deadline) {
  mark_.check("this hub");
  check_may_wait("open()");
  check<UsageError>(receiver != nullptr, "a channel to worker '{}' needs a Receiver",
                    expected.name);
  const LocalAddress to = LocalAddress::parse(address);
  UniqueFd socket = reach(to, expected, deadline);
  const pid_t pid = descriptor_peer_of(socket.get());
  UniqueFd lane_fd;
  ::trireme::local::Window lane = make_lane(lane_fd);
  Letter hello = letter(LetterKind::hello, to.knock);
  hello.bytes = sizeof(Lane);
  // One who sends us away may have said so, and be gone, before he has read all of this.
  const bool sent = send_both(socket.get(), hello, lane_fd, deadline);
  check<Timeout>(sent || !deadline.expired(), kNobodyServes, expected.name);
  wake(to, pid);
  std::vector<ReceivedLetter> early;
  const ReceivedLetter first = await_letter(socket.get(), expected, deadline, early);
  if (first.content.kind == LetterKind::refusal) {
    const auto why = static_cast<Refusal>(first.content.number);
    check<UsageError>(why != Refusal::token,
                      "worker '{}' is of another job: the address that it was asked at is another "
                      "worker's",
                      expected.name);
    check<Mismatch>(why != Refusal::generation,
                    "worker '{}' is of generation {} of the job, and this one of generation {}",
                    expected.name, first.content.generation, options_.self.generation);
    fail<PeerLost>("worker '{}' accepts no channel from worker '{}'", expected.name,
                   options_.self.name);
  }
  check<UsageError>(
      first.content.kind == LetterKind::welcome && same_token(first.content, to.answer),
      "who listens at the address of worker '{}' does not know the word that it "
      "published",
      expected.name);
  check<Mismatch>(
      first.content.name() == expected.name && first.content.generation == expected.generation,
      "worker '{}' of generation {} answers where worker '{}' of generation {} was "
      "expected",
      net::printable(first.content.name()), first.content.generation, expected.name,
      expected.generation);
  const ReceivedLetter second = await_letter(socket.get(), expected, deadline, early);
  check<PeerLost>(second.content.kind == LetterKind::bell, "worker '{}' shares no doorbell",
                  expected.name);
  const auto channel = join(std::move(socket), pid, first.content, std::move(lane), first.fd,
                            second.content, second.fd);
  for (const ReceivedLetter& letter : early) channel->heard(letter);
  channel->set_receiver(std::move(receiver));
  add(channel);
  return channel;
}

// ── who lets in ──

void LocalHub::accept_strangers() {
  for (int i = 0; i < kStrangersAtOnce; ++i) {
    std::optional<DescriptorPeer> peer = accept_for_descriptors(listener_.get());
    if (!peer) return;
    if (!peer->socket) continue;  // another user's process
    if (strangers_.size() >= kMostStrangers) strangers_.pop_front();
    strangers_.push_back({std::move(peer->socket), peer->pid, Deadline::after(kPatience)});
  }
}

void LocalHub::refuse(Stranger& stranger, Refusal why) const {
  Letter no = letter(LetterKind::refusal, "");
  no.number = static_cast<uint32_t>(why);
  send_letter(stranger.socket.get(), no, -1);  // if it can be told
}

/// False: it is a stranger no more, or is not listened to any longer.
bool LocalHub::hear(Stranger& stranger) {
  while (true) {
    ReceivedLetter got = receive_letter(stranger.socket.get());
    if (got.state == ReceivedLetter::nothing) return true;
    if (got.state == ReceivedLetter::other_version) refuse(stranger, Refusal::version);
    if (got.state != ReceivedLetter::letter) return false;
    if (got.lost_fd) {
      log_warn(
          "worker '{}' cannot let worker '{}' in: this process may open no more files (ulimit -n)",
          options_.self.name, net::printable(got.content.name()));
      return false;
    }
    if (stranger.hello) {
      if (got.content.kind == LetterKind::bell) welcome(stranger, got.content, got.fd);
      return false;
    }
    if (got.content.kind != LetterKind::hello) return false;
    if (!same_token(got.content, address_.knock)) {
      refuse(stranger, Refusal::token);
      return false;
    }
    if (got.content.generation != options_.self.generation) {
      refuse(stranger, Refusal::generation);
      return false;
    }
    stranger.hello = got.content;
    stranger.lane = std::move(got.fd);
  }
}

void LocalHub::welcome(Stranger& stranger, const Letter& bell, const UniqueFd& bell_fd) {
  UniqueFd lane_fd;
  std::shared_ptr<LocalChannel> channel;
  try {
    channel = join(UniqueFd(stranger.socket.release()), stranger.pid, *stranger.hello,
                   make_lane(lane_fd), stranger.lane, bell, bell_fd);
  } catch (const Error& e) {
    log_warn("worker '{}' cannot let worker '{}' in: {}", options_.self.name,
             net::printable(stranger.hello->name()), e.what());
    return;
  }
  std::shared_ptr<Receiver> receiver = options_.accept ? options_.accept(channel) : nullptr;
  if (!receiver) {
    Letter no = letter(LetterKind::refusal, "");
    no.number = static_cast<uint32_t>(Refusal::unwanted);
    send_letter(channel->socket(), no, -1);
    return channel->abandon();
  }
  channel->set_receiver(std::move(receiver));
  Letter yes = letter(LetterKind::welcome, address_.answer);
  yes.bytes = sizeof(Lane);
  if (!send_both(channel->socket(), yes, lane_fd, Deadline::after(Duration::zero())))
    channel->look(false, true);  // gone; its receiver learns so
  add(std::move(channel));
}

}  // namespace trireme::channel::local
