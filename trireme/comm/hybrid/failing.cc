// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "trireme/base/check.h"
#include "trireme/comm/hybrid/hybrid_backend.h"

namespace trireme::detail {

void HybridBackend::abort(const std::string& why, AbortKind kind) {
  if (failure_) return;
  const auto [told, own] = give_up(why, kind, rank(), rank(), calls_);
  ending_.tell(told);
  failure_ = own;
  end_groups(told);
}

/// Converts an inner group's failure, which numbers ranks and calls in its own way.
Failure HybridBackend::in_own_numbers(const Error& e, Failure::Kind kind) const {
  std::vector<int> ranks;
  if (at_ == inside)
    ranks = layout_.peers_inside(rank());
  else if (at_ == across)
    ranks = layout_.peers_across(rank());
  if (ranks.empty()) return {kind, e.peer(), e.what()};
  const auto peer = static_cast<size_t>(e.peer());
  std::string text;
  for (int r : ranks) text += (text.empty() ? "" : ", ") + std::to_string(r);
  return {kind, peer < ranks.size() ? ranks[peer] : -1,
          fmt::format("{}, where rank {} count from 0: {}",
                      at_ == inside ? "inside a host" : "across hosts", text, e.what())};
}

void HybridBackend::end_groups(const Failure& cause) {
  const AbortKind kind = cause.kind == Failure::Kind::timeout    ? AbortKind::timeout
                         : cause.kind == Failure::Kind::mismatch ? AbortKind::mismatch
                                                                 : AbortKind::other;
  for (auto& group : groups_) {
    if (!group) continue;
    try {
      group->abort(cause.text, kind);
    } catch (const std::exception&) {  // it has failed already
    }
  }
}

void HybridBackend::finish(const Failure& cause) {
  failure_ = exception_of(cause, rank());
  end_groups(cause);
  std::rethrow_exception(failure_);
}

/// Handles an exception of an inner group, from inside its catch block.
void HybridBackend::finish_because() {
  try {
    throw;
  } catch (const PeerLost& e) {
    finish(ending_.explain(in_own_numbers(e, Failure::Kind::lost)));
  } catch (const Timeout& e) {
    finish(ending_.explain(in_own_numbers(e, Failure::Kind::timeout)));
  } catch (const Mismatch& e) {
    finish(ending_.explain(in_own_numbers(e, Failure::Kind::mismatch)));
  } catch (const std::exception& e) {  // this rank's own failure
    const auto own = std::current_exception();
    abort(e.what(), AbortKind::other);
    failure_ = own;
    std::rethrow_exception(own);
  }
}

Failure HybridBackend::timed_out(Token token, Duration waited) {
  if ((token.kind & 0xf) == kCallKind)
    return ending_.timed_out(pending_.front().number, pending_.front().what.text(), waited);
  const auto& p = *std::find_if(pairs_.begin(), pairs_.end(), [&](const Pair& pair) {
    return pair.token.number == token.number;
  });
  return {Failure::Kind::timeout, token.peer,
          fmt::format("{} with tag {} did not complete within {:.3g} s of rank {}. Such a rank is "
                      "stopped, slower than the timeout of the group, or has made other calls",
                      p.what.text(), p.what.words.tag,
                      std::chrono::duration<double>(waited).count(), rank())};
}

}  // namespace trireme::detail
