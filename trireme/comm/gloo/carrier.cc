// SPDX-License-Identifier: Apache-2.0
#include "trireme/base/check.h"
#include "trireme/base/rank_label.h"
#include "trireme/comm/gloo/gloo_backend.h"

// The group's thread: collectives, one after the other.
namespace trireme::detail {

void GlooBackend::carry() {
  ThreadRankScope label(world_->rank);
  std::unique_lock lock(mutex_);
  for (;;) {
    wake_.wait(lock, [&] { return stop_ || failure_ || !queue_.empty(); });
    if (stop_ || failure_) break;
    running_ = queue_.front();
    queue_.pop_front();
    lock.unlock();
    const bool carried = carry_one(*running_);
    lock.lock();
    if (!carried) break;
    running_->finished = true;
    running_.reset();
    // Without the lock, so that a woken thread need not sleep again at once.
    lock.unlock();
    done_.notify_all();
    lock.lock();
  }
  running_.reset();
  queue_.clear();
}

bool GlooBackend::carry_one(Posted& call) {
  Failure failure;
  try {
    call.run(*collectives_, {call.seq, call.what.digest()});
    return true;
  } catch (const Revoked&) {
    return false;
  } catch (const MessageLost& e) {
    failure = diagnose(e, text_of(call));
  } catch (const std::exception& e) {
    failure = {Failure::Kind::resource, world_rank(rank()),
               fmt::format("rank {} could not do {}: {}", rank(), text_of(call), e.what())};
  }
  settle(world_->watch->fail(group_, failure));
  return false;
}

}  // namespace trireme::detail
