// SPDX-License-Identifier: Apache-2.0
#include "trireme/base/process/cpu_share.h"

#include <fmt/core.h>
#include <time.h>

#include <algorithm>

namespace trireme {
namespace {

double cpu_seconds() {
  timespec t{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

}  // namespace

std::string busiest_and_idlest(const std::vector<RankShare>& shares) {
  if (shares.size() < 2) return "";
  const auto less = [](const RankShare& a, const RankShare& b) { return a.part < b.part; };
  // Of equals the lower rank, both times.
  const auto busiest = std::max_element(shares.begin(), shares.end(), less);
  const auto idlest = std::min_element(shares.begin(), shares.end(), less);
  return fmt::format("CPU: rank {} was busiest, {:.0f} % of its CPU; rank {} idlest, {:.0f} %",
                     busiest->rank, 100 * busiest->part, idlest->rank, 100 * idlest->part);
}

CpuShare::CpuShare(double cpus)
    : cpus_(std::max(cpus, 1.0)), since_(Clock::now()), seconds_(cpu_seconds()) {}

double CpuShare::take() {
  const auto now = Clock::now();
  const double seconds = cpu_seconds();
  const double wall = std::chrono::duration<double>(now - since_).count();
  const double part = wall > 0 ? (seconds - seconds_) / (wall * cpus_) : 0;
  since_ = now;
  seconds_ = seconds;
  return part;
}

}  // namespace trireme
