// SPDX-License-Identifier: Apache-2.0
#include "trireme/rpc/actor/supervision.h"

#include <fmt/format.h>

namespace trireme::rpc::detail {
namespace {

double in_seconds(Duration time) { return std::chrono::duration<double>(time).count(); }

}  // namespace

bool FailureHistory::may_restart(Duration now, const Supervision& policy, const std::string& what) {
  ++failures_;
  told_.push_back({now, what});
  if (told_.size() > kMostTold) told_.pop_front();
  while (!recent_.empty() && now - recent_.front() >= policy.within) recent_.pop_front();
  if (recent_.size() >= static_cast<size_t>(policy.most_restarts > 0 ? policy.most_restarts : 0))
    return false;
  recent_.push_back(now);
  ++restarts_;
  return true;
}

std::string FailureHistory::story() const {
  std::string text = restarts_ == 0   ? "it was not restarted"
                     : restarts_ == 1 ? "it was restarted once"
                                      : fmt::format("it was restarted {} times", restarts_);
  const auto left_out = static_cast<size_t>(failures_) - told_.size();
  if (left_out > 0) text += fmt::format("; {} earlier failures", left_out);
  for (const Failure& failure : told_)
    text += fmt::format("; after {:.3g} s: {}", in_seconds(failure.at), failure.what);
  return text;
}

std::optional<size_t> place_for(const std::vector<Candidate>& workers, size_t before,
                                OnDeath on_death) {
  if (on_death == OnDeath::escalate) return {};
  if (on_death == OnDeath::same_worker)
    return workers[before].there ? std::optional(before) : std::nullopt;
  std::optional<size_t> best;
  for (size_t i = 0; i < workers.size(); ++i) {
    if (!workers[i].there) continue;
    const bool better = !best || workers[i].actors < workers[*best].actors ||
                        (workers[i].actors == workers[*best].actors && i == before);
    if (better) best = i;
  }
  return best;
}

}  // namespace trireme::rpc::detail
