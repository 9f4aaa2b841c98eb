// SPDX-License-Identifier: Apache-2.0
#include "trireme/rpc/agent/call_counts.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace trireme::rpc::detail {

double time_of_part(const std::vector<uint64_t>& of_class, double part) {
  const uint64_t all = std::accumulate(of_class.begin(), of_class.end(), uint64_t{0});
  if (all == 0) return 0;
  const auto wanted =
      std::max<uint64_t>(1, static_cast<uint64_t>(std::ceil(part * static_cast<double>(all))));
  uint64_t so_far = 0;
  for (size_t i = 0; i < of_class.size(); ++i)
    if ((so_far += of_class[i]) >= wanted) return static_cast<double>(longest_of_class(i)) * 1e-9;
  return static_cast<double>(longest_of_class(of_class.size() - 1)) * 1e-9;
}

CallMetrics CallCounts::now() const {
  CallMetrics metrics;
  std::vector<uint64_t> of_class(kTimeClasses);
  for (size_t i = 0; i < kTimeClasses; ++i)
    metrics.calls += of_class[i] = times_[i].load(std::memory_order_relaxed);
  const uint64_t begun = begun_.load(std::memory_order_relaxed);
  metrics.under_way = begun > metrics.calls ? begun - metrics.calls : 0;
  metrics.errors = std::min(metrics.calls, errors_.load(std::memory_order_relaxed));
  metrics.argument_bytes = argument_bytes_.load(std::memory_order_relaxed);
  metrics.result_bytes = result_bytes_.load(std::memory_order_relaxed);
  metrics.p50_s = time_of_part(of_class, 0.5);
  metrics.p99_s = time_of_part(of_class, 0.99);
  return metrics;
}

CallCounts& MethodCounts::of(const std::string& method, size_t direction) {
  std::lock_guard lock(mutex_);
  auto& place = all_[method][direction];
  if (!place) place = std::make_unique<CallCounts>();
  return *place;
}

std::vector<MethodMetrics> MethodCounts::now() const {
  std::lock_guard lock(mutex_);
  std::vector<MethodMetrics> methods;
  for (const auto& [name, directions] : all_) {
    MethodMetrics method{name, {}, {}};
    if (directions[0]) method.made = directions[0]->now();
    if (directions[1]) method.answered = directions[1]->now();
    if (method.made.calls + method.made.under_way + method.answered.calls +
            method.answered.under_way >
        0)
      methods.push_back(std::move(method));
  }
  return methods;
}

}  // namespace trireme::rpc::detail
