// SPDX-License-Identifier: Apache-2.0
#include "trireme/launch/hang/hang_watch.h"

#include <fmt/core.h>

#include <algorithm>

namespace trireme::launch {
namespace {

constexpr size_t kStepsOfMedian = 31;
constexpr int kTimes = 10;
constexpr size_t kRanksNamed = 8;

double in_seconds(Duration d) { return std::chrono::duration<double>(d).count(); }

/// "step 3", "a save after step 3".
std::string where(const HangWatch::Rank& r) {
  switch (r.at) {
    case Activity::step:
      return fmt::format("step {}", r.step);
    case Activity::evaluate:
      return fmt::format("the evaluation after step {}", r.step);
    case Activity::save:
      return fmt::format("the save of step {}", r.step);
    case Activity::load:
      return "loading";
    case Activity::build:
      return "building the model";
    default:
      return name_of(r.at);
  }
}

std::string why_limit(const HangWatch::Rank& r) {
  const std::string limit = fmt::format("{:.3g} s", in_seconds(r.limit));
  if (r.at != Activity::step || r.median == Duration::zero()) return limit;
  return limit + fmt::format("; its steps take {:.3g} s", in_seconds(r.median));
}

std::string doing(const RankInSight& r) {
  if (r.stopped && !r.waits_in.empty()) return "is stopped by a signal, in " + r.waits_in;
  if (r.stopped) return "is stopped by a signal";
  return r.waits_in.empty() ? "waits in no call" : "waits in " + r.waits_in;
}

template <class Text>
std::string joined(const std::vector<size_t>& which, const char* between, const Text& text) {
  std::string all;
  for (size_t i = 0; i < which.size() && i < kRanksNamed; ++i)
    all += (i ? between : "") + text(which[i]);
  if (which.size() > kRanksNamed)
    all += fmt::format("{}{} more", between, which.size() - kRanksNamed);
  return all;
}

}  // namespace

void HangWatch::Watched::end_silence() {
  Duration& before = longest[static_cast<size_t>(at)];
  before = std::max(before, silence);
  silence = Duration::zero();
  fresh = true;
}

void HangWatch::marked(int id, Activity at, int64_t step, uint64_t time_ns) {
  if (at == Activity::done || at == Activity::none || static_cast<int>(at) >= kActivities)
    return gone(id);
  Watched& w = ranks_[id];
  w.end_silence();
  if (w.at == Activity::step) {
    // What it says of its own time cannot be more than what was seen of it.
    const Duration seen = w.in_phase + 2 * kMostOfALook;
    const uint64_t most =
        static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(seen).count());
    const uint64_t said = time_ns > w.time_ns ? time_ns - w.time_ns : 0;
    w.steps.push_back(std::chrono::duration_cast<Duration>(
        std::chrono::nanoseconds(static_cast<int64_t>(std::min(said, most)))));
    if (w.steps.size() > kStepsOfMedian) w.steps.pop_front();
  }
  w.at = at;
  w.step = step;
  w.time_ns = time_ns;
  w.in_phase = Duration::zero();
}

void HangWatch::alive(int id) {
  if (const auto found = ranks_.find(id); found != ranks_.end()) found->second.end_silence();
}

void HangWatch::look(Duration since_last_look) {
  const Duration counts = std::clamp(since_last_look, Duration::zero(), kMostOfALook);
  for (auto& [id, w] : ranks_) {
    w.in_phase += counts;
    w.silence = w.fresh ? Duration::zero() : w.silence + counts;
    w.fresh = false;
  }
}

Duration HangWatch::median_of(const Watched& w) const {
  if (w.steps.empty()) return Duration::zero();
  std::vector<Duration> steps(w.steps.begin(), w.steps.end());
  const auto middle = steps.begin() + static_cast<ptrdiff_t>(steps.size() / 2);
  std::nth_element(steps.begin(), middle, steps.end());
  return *middle;
}

std::optional<HangWatch::Rank> HangWatch::rank(int id) const {
  const auto found = ranks_.find(id);
  if (found == ranks_.end()) return std::nullopt;
  const Watched& w = found->second;
  Rank r{w.at, w.step, w.silence, {}, median_of(w)};
  if (w.at == Activity::step && !w.steps.empty())
    r.limit = std::max(limit_, kTimes * r.median);
  else
    r.limit = kTimes * std::max(limit_, w.longest[static_cast<size_t>(w.at)]);
  return r;
}

std::optional<HangVerdict> judge_hang(const std::vector<RankInSight>& in_sight, int ranks_of_job) {
  HangVerdict verdict;
  std::vector<size_t> waiting, stopped;
  size_t watched = 0;
  bool all_silent = true;
  for (size_t i = 0; i < in_sight.size(); ++i) {
    const RankInSight& r = in_sight[i];
    if (!r.is_watched()) {
      if (r.stopped) stopped.push_back(i);
      continue;
    }
    ++watched;
    all_silent = all_silent && r.marks.is_silent();
    const bool waits = !r.waits_in.empty() && !r.stopped;
    if (waits) waiting.push_back(i);
    if (r.marks.is_silent() && !waits) verdict.blamed.push_back(i);
  }
  const auto name = [&](size_t i) {
    return fmt::format("rank {} (pid {})", in_sight[i].rank, in_sight[i].pid);
  };
  const auto number = [&](size_t i) { return std::to_string(in_sight[i].rank); };
  const auto place = [&](size_t i) {
    const HangWatch::Rank& m = in_sight[i].marks;
    return fmt::format("{} hangs in {}: no progress for {:.3g} s (its limit: {}), and it {}",
                       name(i), where(m), in_seconds(m.silence), why_limit(m), doing(in_sight[i]));
  };
  const auto call = [&](size_t i) {
    return fmt::format("rank {} waits in {}", in_sight[i].rank, in_sight[i].waits_in);
  };
  if (!verdict.blamed.empty()) {
    verdict.sentence = joined(verdict.blamed, "; ", place);
    if (!waiting.empty()) verdict.sentence += "; " + joined(waiting, "; ", call);
    const HangWatch::Rank& first = in_sight[verdict.blamed[0]].marks;
    verdict.cause =
        fmt::format("rank {} hangs in {}", joined(verdict.blamed, ", ", number), where(first));
    return verdict;
  }
  if (watched == 0 || !all_silent) return std::nullopt;
  const HangWatch::Rank& first = in_sight[waiting[0]].marks;
  if (!stopped.empty()) {
    verdict.blamed = stopped;
    const auto is_stopped = [&](size_t i) { return name(i) + " is stopped by a signal"; };
    verdict.sentence =
        fmt::format("{}; {}, for {:.3g} s (the limit: {})", joined(stopped, "; ", is_stopped),
                    joined(waiting, "; ", call), in_seconds(first.silence), why_limit(first));
    verdict.cause = fmt::format("rank {} is stopped by a signal", joined(stopped, ", ", number));
    return verdict;
  }
  if (static_cast<int>(watched) < ranks_of_job) return std::nullopt;
  verdict.blamed = waiting;
  verdict.sentence = fmt::format(
      "all ranks wait for each other in {}, for {:.3g} s (the limit: {}): {}", where(first),
      in_seconds(first.silence), why_limit(first), joined(waiting, "; ", call));
  verdict.cause = "all ranks wait for each other in " + where(first);
  return verdict;
}

}  // namespace trireme::launch
