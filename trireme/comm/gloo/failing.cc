// SPDX-License-Identifier: Apache-2.0
#include <cstdlib>

#include "trireme/base/check.h"
#include "trireme/comm/gloo/gloo_backend.h"

namespace trireme::detail {

void GlooBackend::check_usable() {
  std::lock_guard lock(mutex_);
  if (failure_) std::rethrow_exception(failure_);
}

void GlooBackend::give_up_connecting(const std::string& why) {
  {
    std::lock_guard lock(mutex_);
    if (failure_) return;  // all know
  }
  world_->watch->fail(group_,
                      {Failure::Kind::lost, world_rank(rank()),
                       fmt::format("rank {} gave up connecting to the others: {}", rank(), why)});
}

void GlooBackend::abort(const std::string& why, AbortKind kind) {
  const auto [reason, own] = give_up(why, kind, rank(), world_rank(rank()), calls_);
  {
    std::lock_guard lock(mutex_);
    if (failure_) return;
    failure_ = own;
  }
  if (size() == 1) return;
  world_->watch->fail(group_, reason);
  messenger_->revoke();
  wake_.notify_all();
}

void GlooBackend::settle(const Failure& failure) {
  std::shared_ptr<Connecting> connecting;
  {
    std::lock_guard lock(mutex_);
    if (!failure_) failure_ = exception_of(failure, rank());
    if (messenger_) messenger_->revoke();
    connecting = connecting_;
  }
  // Without the lock, which the connecting thread takes to ask whether it may continue.
  if (connecting) connecting->give_up();
  wake_.notify_all();
  done_.notify_all();
}

void GlooBackend::fail_now(const Failure& failure) {
  settle(world_->watch->fail(group_, failure));
  check_usable();
  std::abort();  // settle() set it
}

Failure GlooBackend::diagnose(const MessageLost& lost, const std::string& where) {
  const int peer = lost.peer < 0 ? -1 : world_rank(lost.peer);
  if (auto reason = world_->watch->cause(group_, peer, kPatience)) return *reason;
  if (peer < 0)
    return {Failure::Kind::lost, -1,
            fmt::format("rank {} lost its connections while it waited in {}: {}", rank(), where,
                        lost.what())};
  if (world_->watch->has_left(group_, peer))
    return {Failure::Kind::mismatch, peer,
            fmt::format("rank {} left while rank {} waits in {}. Every rank must make the same "
                        "calls",
                        lost.peer, rank(), where)};
  return {Failure::Kind::lost, peer,
          fmt::format("rank {} lost the connection to rank {} while it waited in {}: {}", rank(),
                      lost.peer, where, lost.what())};
}

}  // namespace trireme::detail
