// SPDX-License-Identifier: Apache-2.0
#include "trireme/monitor/span_sink.h"

namespace trireme {
namespace {

// A thread that never takes must not grow: beyond this the oldest spans can no longer be found
// inside another one.
constexpr size_t kMostOuter = 4096;

}  // namespace

void SpanSink::span(const char* category, const char*, int64_t begin_ns, int64_t end_ns) {
  std::lock_guard lock(mutex_);
  Thread& thread = threads_[std::this_thread::get_id()];
  // Inner spans end first, so those inside this one are the newest.
  int64_t inside = 0;
  while (!thread.outer.empty() && thread.outer.back().begin >= begin_ns) {
    inside += thread.outer.back().end - thread.outer.back().begin;
    thread.outer.pop_back();
  }
  if (thread.outer.size() >= kMostOuter)
    thread.outer.erase(thread.outer.begin(), thread.outer.end() - kMostOuter / 2);
  thread.outer.push_back({begin_ns, end_ns});
  thread.ns[category] += end_ns - begin_ns - inside;
  ++thread.spans[category];
}

void SpanSink::counter(const char* name, double delta) {
  std::lock_guard lock(mutex_);
  counters_[name] += delta;
}

StepTimes SpanSink::take() {
  std::lock_guard lock(mutex_);
  StepTimes times;
  Thread& thread = threads_[std::this_thread::get_id()];
  for (const auto& [category, ns] : thread.ns)
    times.seconds[category] = static_cast<double>(ns) * 1e-9;
  times.spans = std::move(thread.spans);
  times.counters = std::move(counters_);
  thread = Thread{};
  counters_.clear();
  return times;
}

}  // namespace trireme
