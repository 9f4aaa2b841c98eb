// SPDX-License-Identifier: Apache-2.0
#include "trireme/checkpoint/steps/snapshot/handover.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <utility>

#include "trireme/base/check.h"
#include "trireme/base/clock.h"
#include "trireme/base/log.h"
#include "trireme/base/process/descriptor_socket.h"
#include "trireme/checkpoint/steps/snapshot/handed_on.h"

namespace trireme {
namespace {

constexpr uint32_t kHandoverMagic = 0x6e735254;  // "TRsn"

struct HandoverMessage {
  uint32_t magic = kHandoverMagic;
  uint32_t version = 1;
  int32_t rank = 0;
  int32_t slot = 0;  // it comes with a descriptor, or with none
};

// In place of a slot: a process asks for what is held. In the answer `slot` counts down what is to
// come, and the last message has no descriptor.
constexpr int32_t kAsks = -1;
constexpr std::chrono::seconds kAnswerLimit{30};

constexpr size_t kMostRanks = 1024;

/// Memory that a snapshot was begun in has a head. Reserved memory has zeros there.
bool is_begun(int fd) {
  char first = 0;
  return ::pread(fd, &first, 1, 0) == 1 && first != 0;
}

/// Descriptors for memories beside what a launcher needs for its workers.
size_t most_ranks() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return 16;
  return std::clamp<size_t>(limit.rlim_cur / 2 / (1 + SnapshotHandover::kSlots), 1, kMostRanks);
}

}  // namespace

SnapshotHandover::SnapshotHandover(int rank) : rank_(rank) {
  const char* path = std::getenv(kSnapshotsVariable);
  if (!path || !*path) return;
  socket_ = connect_for_descriptors(path);
  if (!socket_) log_debug("no launcher holds snapshots at {}: {}", path, errno_text());
}

void SnapshotHandover::hold(int slot, int fd) {
  if (!socket_) return;
  HandoverMessage message;
  message.rank = rank_;
  message.slot = slot;
  if (send_descriptor(socket_.get(), &message, sizeof message, fd)) return;
  log_debug("the launcher does not hold a snapshot: {}", errno_text());
  socket_.reset();
}

std::vector<HandedSnapshot> ask_for_snapshots() {
  const char* path = std::getenv(kSnapshotsVariable);
  if (!path || !*path) return {};
  const UniqueFd socket = connect_for_descriptors(path);
  HandoverMessage message;
  message.slot = kAsks;
  if (!socket || !send_descriptor(socket.get(), &message, sizeof message, -1)) {
    log_debug("no launcher holds snapshots at {}: {}", path, errno_text());
    return {};
  }
  const Deadline deadline = Deadline::after(kAnswerLimit);
  std::vector<HandedSnapshot> snapshots;
  while (!deadline.expired()) {
    pollfd answer{socket.get(), POLLIN, 0};
    ::poll(&answer, 1, deadline.poll_ms(1000));
    ReceivedDescriptor got = receive_descriptor(socket.get(), &message, sizeof message);
    if (got.end == ReceivedDescriptor::nothing_there) continue;
    if (got.end == ReceivedDescriptor::closed && snapshots.empty()) return {};
    check<Corrupt>(got.end == ReceivedDescriptor::message && got.whole && !got.too_many &&
                       message.magic == kHandoverMagic && message.version == 1,
                   "the launcher broke off its answer, or sent something else");
    if (!got.fd) return snapshots;
    check<Corrupt>(is_sealed_snapshot(got.fd.get()),
                   "the launcher sent no memory that is sealed against writing");
    snapshots.push_back({std::move(got.fd), message.rank});
  }
  fail<Corrupt>("the launcher did not answer within {} s", kAnswerLimit.count());
}

SnapshotHolder::SnapshotHolder(const std::string& path)
    : path_(path), listener_(listen_for_descriptors(path, static_cast<int>(kMostRanks))) {}

SnapshotHolder::~SnapshotHolder() { ::unlink(path_.c_str()); }

void SnapshotHolder::add_to(std::vector<pollfd>& fds) const {
  fds.push_back({listener_.get(), POLLIN, 0});
  for (const Rank& rank : ranks_)
    if (rank.socket) fds.push_back({rank.socket.get(), POLLIN, 0});
}

void SnapshotHolder::serve() {
  while (accept_one()) {
  }
  for (Rank& rank : ranks_)
    for (int n = 0; n < 16 && rank.socket && receive_one(rank); ++n) {
    }
  std::erase_if(ranks_, [](const Rank& rank) {
    return !rank.socket && std::none_of(rank.slots.begin(), rank.slots.end(),
                                        [](const UniqueFd& fd) { return bool(fd); });
  });
  forget_what_is_older();
}

size_t SnapshotHolder::ranks_that_let_go() const {
  return static_cast<size_t>(std::count_if(
      ranks_.begin(), ranks_.end(), [](const Rank& rank) { return rank.let_go && rank.socket; }));
}

bool SnapshotHolder::all_have_let_go() const {
  return ranks_that_let_go() > 0 && std::all_of(ranks_.begin(), ranks_.end(), [](const Rank& rank) {
           return rank.let_go || !rank.socket;
         });
}

bool SnapshotHolder::is_asked() const {
  return std::any_of(ranks_.begin(), ranks_.end(),
                     [](const Rank& rank) { return rank.asks && rank.socket; });
}

std::vector<HandedSnapshot> SnapshotHolder::take_left() {
  std::vector<HandedSnapshot> left;
  for (Rank& rank : ranks_)
    for (UniqueFd& fd : rank.slots)
      if (fd && !rank.socket) left.push_back({std::move(fd), rank.rank});
  if (!left.empty()) ++changes_;
  return left;
}

void SnapshotHolder::answer(const std::vector<const HandedSnapshot*>& snapshots) {
  for (Rank& rank : ranks_) {
    if (!std::exchange(rank.asks, false) || !rank.socket) continue;
    HandoverMessage message;
    bool sent = true;
    auto to_come = static_cast<int32_t>(snapshots.size());
    for (const HandedSnapshot* snapshot : snapshots) {
      message.rank = snapshot->rank, message.slot = to_come--;
      sent =
          sent && send_descriptor(rank.socket.get(), &message, sizeof message, snapshot->fd.get());
    }
    message.rank = message.slot = 0;
    if (sent && send_descriptor(rank.socket.get(), &message, sizeof message, -1)) continue;
    log_warn("a process that asked for snapshots cannot be answered: {}", errno_text());
    rank.socket.reset();
  }
}

// Those that hand over now have come after these went, and have whole snapshots of their own.
void SnapshotHolder::forget_what_is_older() {
  if (!all_have_let_go()) return;
  int64_t first = events_;
  for (const Rank& rank : ranks_)
    if (rank.socket) first = std::min(first, rank.came);
  if (std::erase_if(ranks_, [&](const Rank& rank) { return !rank.socket && rank.went < first; }))
    ++changes_;
}

bool SnapshotHolder::has_a_second() const {
  return std::any_of(ranks_.begin(), ranks_.end(), [](const Rank& rank) {
    return std::all_of(rank.slots.begin(), rank.slots.end(),
                       [](const UniqueFd& fd) { return fd && is_begun(fd.get()); });
  });
}

std::vector<HandedSnapshot> SnapshotHolder::copies() const {
  std::vector<HandedSnapshot> all;
  for (const Rank& rank : ranks_)
    for (const UniqueFd& fd : rank.slots)
      if (fd) all.push_back({UniqueFd(::fcntl(fd.get(), F_DUPFD_CLOEXEC, 3)), rank.rank});
  return all;
}

std::vector<HandedSnapshot> SnapshotHolder::take_all() {
  serve();
  ++changes_;
  std::vector<HandedSnapshot> all;
  for (Rank& rank : ranks_)
    for (UniqueFd& fd : rank.slots)
      if (fd) all.push_back({std::move(fd), rank.rank});
  ranks_.clear();
  return all;
}

bool SnapshotHolder::accept_one() {
  auto peer = accept_for_descriptors(listener_.get());
  if (!peer) return false;
  if (peer->socket && ranks_.size() < most_ranks())
    ranks_.push_back({std::move(peer->socket), 0, false, false, 0, 0, {}});
  return true;
}

// False: nothing there, or the end of it.
bool SnapshotHolder::receive_one(Rank& rank) {
  HandoverMessage message;
  ReceivedDescriptor got = receive_descriptor(rank.socket.get(), &message, sizeof message);
  if (got.end == ReceivedDescriptor::nothing_there) return false;
  if (got.end == ReceivedDescriptor::closed) {  // what it has handed over stays
    rank.socket.reset();
    rank.went = ++events_;
    return false;
  }
  std::string fault;
  if (!got.whole || message.magic != kHandoverMagic)
    fault = "sent what is no message of ours";
  else if (message.version != 1)
    fault = "is of another build";
  else if (got.too_many)
    fault = "sent more descriptors than there is room for";
  else if (message.slot == kAsks && !got.fd) {
    rank.asks = true;
    return true;
  } else if (message.slot < 0 || message.slot >= SnapshotHandover::kSlots || message.rank < 0)
    fault = "names a slot or a rank that there is not";
  else if (const std::string what = got.fd ? fault_in_memory(got.fd.get()) : ""; !what.empty())
    fault = "handed over a descriptor that " + what;
  if (!fault.empty()) {
    log_warn("a process of this job that would hand over a snapshot {}: it is not listened to",
             fault);
    rank.socket.reset();
    rank.went = ++events_;
    return false;
  }
  rank.rank = message.rank;
  if (rank.came == 0) rank.came = ++events_;
  ++changes_;
  if (!got.fd) rank.let_go = true;
  rank.slots[static_cast<size_t>(message.slot)] = std::move(got.fd);
  return true;
}

}  // namespace trireme
