// SPDX-License-Identifier: Apache-2.0
#include "trireme/checkpoint/steps/snapshot/handover.h"

#include <sys/resource.h>

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "trireme/base/check.h"
#include "trireme/base/log.h"
#include "trireme/base/process/descriptor_socket.h"

namespace trireme {
namespace {

constexpr uint32_t kHandoverMagic = 0x6e735254;  // "TRsn"

struct HandoverMessage {
  uint32_t magic = kHandoverMagic;
  uint32_t version = 1;
  int32_t rank = 0;
  int32_t slot = 0;  // it comes with a descriptor, or with none
};

constexpr size_t kMostRanks = 1024;

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
}

size_t SnapshotHolder::ranks_that_let_go() const {
  return static_cast<size_t>(
      std::count_if(ranks_.begin(), ranks_.end(), [](const Rank& rank) { return rank.let_go; }));
}

void SnapshotHolder::forget_gone() {
  serve();
  std::erase_if(ranks_, [](const Rank& rank) { return !rank.socket; });
}

std::vector<HandedSnapshot> SnapshotHolder::take_all() {
  serve();
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
    ranks_.push_back({std::move(peer->socket), 0, false, {}});
  return true;
}

// False: nothing there, or the end of it.
bool SnapshotHolder::receive_one(Rank& rank) {
  HandoverMessage message;
  ReceivedDescriptor got = receive_descriptor(rank.socket.get(), &message, sizeof message);
  if (got.end == ReceivedDescriptor::nothing_there) return false;
  if (got.end == ReceivedDescriptor::closed) {  // what it has handed over stays
    rank.socket.reset();
    return false;
  }
  std::string fault;
  if (!got.whole || message.magic != kHandoverMagic)
    fault = "sent what is no message of ours";
  else if (message.version != 1)
    fault = "is of another build";
  else if (got.too_many)
    fault = "sent more descriptors than there is room for";
  else if (message.slot < 0 || message.slot >= SnapshotHandover::kSlots || message.rank < 0)
    fault = "names a slot or a rank that there is not";
  else if (const std::string what = got.fd ? fault_in_memory(got.fd.get()) : ""; !what.empty())
    fault = "handed over a descriptor that " + what;
  if (!fault.empty()) {
    log_warn("a process of this job that would hand over a snapshot {}: it is not listened to",
             fault);
    rank.socket.reset();
    return false;
  }
  rank.rank = message.rank;
  if (!got.fd) rank.let_go = true;
  rank.slots[static_cast<size_t>(message.slot)] = std::move(got.fd);
  return true;
}

}  // namespace trireme
