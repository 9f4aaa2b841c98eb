// SPDX-License-Identifier: Apache-2.0
#include "trireme/comm/hybrid/ending.h"

#include <cstdlib>
#include <vector>

#include "trireme/base/check.h"
#include "trireme/rendezvous/join.h"

namespace trireme::detail {
namespace {

constexpr Duration kPatience = std::chrono::seconds(2);  // for the cause of a lost rank
const char* const kGroup = "all";

std::vector<int> ranks_below(int size) {
  std::vector<int> ranks;
  for (int r = 0; r < size; ++r) ranks.push_back(r);
  return ranks;
}

}  // namespace

Ending::Ending(Store& store, int rank, int size, Deadline deadline) : rank_(rank), size_(size) {
  if (size == 1) return;
  watch_ = std::make_unique<FailureMonitor>(
      std::make_unique<PrefixStore>(store.clone(deadline), "ending"), rank, size);
  watch_->join(kGroup, ranks_below(size), [this](const Failure& cause) {
    {
      std::lock_guard lock(mutex_);
      cause_ = cause;
    }
    known_.store(true, std::memory_order_release);
  });
}

Ending::~Ending() { leave(false); }

Failure Ending::cause() const {
  std::lock_guard lock(mutex_);
  return cause_;
}

Failure Ending::tell(const Failure& found) { return watch_ ? watch_->fail(kGroup, found) : found; }

Failure Ending::explain(const Failure& seen) {
  if (!watch_) return seen;
  const auto patience = seen.kind == Failure::Kind::lost ? kPatience : Duration{};
  if (auto told = watch_->cause(kGroup, seen.peer, patience)) return *told;
  return tell(seen);
}

void Ending::say(uint64_t call, const std::string& text) {
  if (watch_) watch_->say(kGroup, fmt::format("{} {}", call, text));
}

Failure Ending::timed_out(uint64_t call, const std::string& text, Duration waited) {
  const auto said =
      watch_ ? watch_->words(kGroup, ranks_below(size_)) : std::map<int, std::string>();
  const double seconds = std::chrono::duration<double>(waited).count();
  if (const std::string silence = watch_ ? watch_->silence() : ""; !silence.empty())
    return {Failure::Kind::timeout, -1,
            fmt::format("call {}, {}: no result within {:.3g} s of rank {}. {}", call, text,
                        seconds, rank_, silence)};
  std::vector<int> missing;
  std::string last;
  for (int r = 0; r < size_; ++r) {
    if (r == rank_) continue;
    const auto at = said.find(r);
    char* rest = nullptr;
    const uint64_t theirs = at == said.end() ? 0 : std::strtoull(at->second.c_str(), &rest, 10);
    if (theirs >= call) continue;
    missing.push_back(r);
    last += fmt::format(
        "{}rank {} {}", last.empty() ? "" : "; ", r,
        theirs ? fmt::format("waited last in call {},{}", theirs, rest) : "has said nothing");
  }
  const char* advice =
      "Such a rank is stopped, slower than the timeout of the group, or has made other calls";
  if (missing.empty())
    return {Failure::Kind::timeout, -1,
            fmt::format("call {}, {}: the ranks did not get through within {:.3g} s of rank {}. {}",
                        call, text, seconds, rank_, advice)};
  return {Failure::Kind::timeout, missing[0],
          fmt::format("call {}, {}: rank {} did not arrive within {:.3g} s of rank {} ({}). {}",
                      call, text, name_ranks(missing), seconds, rank_, last, advice)};
}

void Ending::leave(bool in_order) {
  if (!watch_) return;
  watch_->leave(kGroup, in_order);
  watch_.reset();
}

}  // namespace trireme::detail
