// SPDX-License-Identifier: Apache-2.0
#include "trireme/rpc/server/plan/clocks.h"

#include <algorithm>

#include "trireme/base/check.h"

namespace trireme::rpc::plan {

Clocks::Clocks(int workers, std::optional<int64_t> staleness) : staleness_(staleness) {
  check<UsageError>(workers >= 1 && workers <= 1 << 20,
                    "a parameter server for {} workers: there must be at least one", workers);
  check<UsageError>(!staleness || *staleness >= 0,
                    "a parameter server with staleness {}: it must not be negative (unset: "
                    "synchronous)",
                    staleness.value_or(0));
  of_.resize(static_cast<size_t>(workers));
}

std::vector<int> Clocks::lost() const {
  std::vector<int> ranks;
  for (int r = 0; r < workers(); ++r)
    if (at(r).presence == Presence::lost) ranks.push_back(r);
  return ranks;
}

bool Clocks::any(Presence presence) const {
  return std::any_of(of_.begin(), of_.end(),
                     [&](const Worker& w) { return w.presence == presence; });
}

bool Clocks::nobody_is_here() const {
  const bool waits =
      std::any_of(of_.begin(), of_.end(), [](const Worker& w) { return w.waited_for(); });
  return !waits && (any(Presence::left) || any(Presence::lost));
}

void Clocks::come(int rank, int64_t clock) {
  at(rank).presence = Presence::here;
  if (staleness_) at(rank).clock = clock;
}

void Clocks::gave(int rank) {
  ++at(rank).clock;
  if (staleness_) ++step_;
}

std::vector<int> Clocks::complete() const {
  std::vector<int> ranks;
  if (staleness_) return ranks;
  for (int r = 0; r < workers(); ++r) {
    if (at(r).clock > step_)
      ranks.push_back(r);
    else if (at(r).waited_for())
      return {};
  }
  return ranks;
}

bool Clocks::may_begin(int /*rank*/, int64_t step) const {
  if (!staleness_) return step_ >= step;
  return waited_for(step).empty();
}

std::vector<int> Clocks::waited_for(int64_t step) const {
  std::vector<int> ranks;
  const int64_t least = staleness_ ? step - *staleness_ : std::min(step, step_ + 1);
  for (int r = 0; r < workers(); ++r)
    if (at(r).waited_for() && at(r).clock < least) ranks.push_back(r);
  return ranks;
}

void Clocks::go_back(int64_t step, const std::vector<int>& lost) {
  step_ = step;
  for (Worker& w : of_) {
    w.clock = step;
    if (w.presence == Presence::lost) w.presence = Presence::expected;
  }
  for (const int r : lost)
    if (knows(r)) at(r).presence = Presence::lost;
}

void Clocks::resume(int64_t step, const std::vector<int64_t>& clocks) {
  step_ = step;
  for (size_t r = 0; r < of_.size(); ++r) {
    of_[r].clock = r < clocks.size() ? clocks[r] : 0;
    of_[r].presence = Presence::away;
  }
}

std::vector<int64_t> Clocks::clocks() const {
  std::vector<int64_t> all;
  for (const Worker& w : of_) all.push_back(w.clock);
  return all;
}

}  // namespace trireme::rpc::plan
