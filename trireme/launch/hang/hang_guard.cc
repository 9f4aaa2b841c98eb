// SPDX-License-Identifier: Apache-2.0
#include "trireme/launch/hang/hang_guard.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "trireme/base/error.h"
#include "trireme/base/events/handover.h"
#include "trireme/base/log.h"
#include "trireme/base/process/descriptor_socket.h"
#include "trireme/launch/process/children.h"

namespace trireme::launch {
namespace {

constexpr Duration kLookEvery = std::chrono::milliseconds(250);
constexpr size_t kMostConnections = 1024;

/// Of the descriptors that a launcher may have, a part: a worker takes two.
size_t most_workers() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return 16;
  return std::clamp<size_t>(limit.rlim_cur / 8, 1, kMostConnections);
}

}  // namespace

HangGuard::HangGuard(const std::string& path, Duration limit)
    : path_(path),
      listener_(listen_for_descriptors(path, static_cast<int>(kMostConnections))),
      watch_(limit) {}

HangGuard::~HangGuard() { ::unlink(path_.c_str()); }

void HangGuard::add_to(std::vector<pollfd>& fds) const {
  fds.push_back({listener_.get(), POLLIN, 0});
  for (const auto& [id, worker] : workers_) fds.push_back({worker.socket.get(), POLLIN, 0});
}

void HangGuard::serve(const RankOf& rank_of) {
  while (accept_one()) {
  }
  for (auto it = workers_.begin(); it != workers_.end();) {
    if (receive(it->second, rank_of)) {
      ++it;
      continue;
    }
    watch_.gone(it->first);
    it = workers_.erase(it);
  }
}

bool HangGuard::accept_one() {
  auto peer = accept_for_descriptors(listener_.get());
  if (!peer) return false;
  if (!peer->socket || workers_.size() >= most_workers()) return true;
  workers_[next_id_++] = {std::move(peer->socket), peer->pid, -1, nullptr, {}};
  return true;
}

// False: it has gone, or is not listened to any more.
bool HangGuard::receive(Worker& worker, const RankOf& rank_of) {
  EventHandover message;
  ReceivedDescriptor got = receive_descriptor(worker.socket.get(), &message, sizeof message);
  if (got.end == ReceivedDescriptor::nothing_there) return true;
  if (got.end == ReceivedDescriptor::closed) return false;
  std::string fault;
  if (!got.whole || message.magic != EventHandover::kMagic || !got.fd || got.too_many)
    fault = "sent what is no message of ours";
  else if (message.version != 1)
    fault = "is of another build";
  else if (worker.events)
    fault = "has done so before";
  else if (worker.rank = rank_of(worker.pid, message.rank); worker.rank < 0)
    fault = "is no worker of this attempt";
  else
    try {
      worker.events = EventReader::open(std::move(got.fd));
      worker.marks.assign(worker.events->lanes(), false);
    } catch (const Error& error) {
      fault = std::string("handed over what cannot be read: ") + error.what();
    }
  if (!fault.empty()) {
    log_warn("process {}, which would show its progress, {}: it is not listened to", worker.pid,
             fault);
    return false;
  }
  if (next_look_.is_never()) {
    last_look_ = Clock::now();
    next_look_ = Deadline::after(kLookEvery);
  }
  return true;
}

void HangGuard::read_marks(int id, Worker& worker) {
  for (const SeenEvent& event : worker.events->take()) {
    if (event.kind == EventKind::progress) {
      worker.marks[event.lane] = true;
      watch_.marked(id, static_cast<Activity>(event.detail), static_cast<int64_t>(event.number),
                    event.time_ns);
    } else if (event.kind == EventKind::alive) {
      // A thread that writes in the background says nothing of the one that steps.
      const auto rank = watch_.rank(id);
      if (worker.marks[event.lane] ||
          (rank && (rank->at == Activity::save || rank->at == Activity::load)))
        watch_.alive(id);
    }
  }
}

// A device's thread waits in backward for the one that has marked.
std::string HangGuard::waits_in(const Worker& worker) const {
  for (uint32_t lane = 0; lane < worker.events->lanes(); ++lane)
    if (worker.events->thread_of(lane))
      if (std::string text = worker.events->waits_in(lane); !text.empty()) return text;
  return "";
}

std::optional<HangGuard::Hang> HangGuard::look(int ranks_of_job,
                                               const std::vector<std::pair<int, pid_t>>& workers) {
  if (!next_look_.expired()) return std::nullopt;
  const auto now = Clock::now();
  const Duration since = now - std::exchange(last_look_, now);
  next_look_ = workers_.empty() ? Deadline::never() : Deadline::after(kLookEvery);
  for (auto& [id, worker] : workers_)
    if (worker.events) read_marks(id, worker);
  watch_.look(since);

  bool any = false;
  for (const auto& [id, worker] : workers_)
    if (const auto rank = watch_.rank(id)) any |= rank->is_silent();
  if (!any) return std::nullopt;
  Hang hang;
  for (const auto& [id, worker] : workers_) {
    const auto rank = watch_.rank(id);
    if (!rank) continue;
    // A child that it forked may hold its socket.
    if (!lives(worker.pid)) {
      watch_.gone(id);
      continue;
    }
    hang.ranks.push_back(
        {worker.rank, worker.pid, *rank, waits_in(worker), is_stopped(worker.pid)});
  }
  for (const auto& [rank, pid] : workers)
    if (std::none_of(hang.ranks.begin(), hang.ranks.end(),
                     [rank = rank](const RankInSight& r) { return r.rank == rank; }))
      hang.ranks.push_back({rank, pid, {}, "", is_stopped(pid)});
  auto verdict = judge_hang(hang.ranks, ranks_of_job);
  if (!verdict) return std::nullopt;
  hang.verdict = std::move(*verdict);
  return hang;
}

void HangGuard::begin_anew() {
  for (const auto& [id, worker] : workers_) watch_.alive(id);
}

void HangGuard::forget_all() {
  for (const auto& [id, worker] : workers_) watch_.gone(id);
  workers_.clear();
  next_look_ = Deadline::never();
}

}  // namespace trireme::launch
