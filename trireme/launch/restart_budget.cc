// SPDX-License-Identifier: Apache-2.0
#include "trireme/launch/restart_budget.h"

#include <fmt/core.h>

#include <algorithm>

namespace trireme::launch {

int RestartBudget::left(Clock::time_point now) const {
  if (window_ == Duration::zero()) return most_ - spent_;
  return most_ - static_cast<int>(std::count_if(times_.begin(), times_.end(), [&](const auto& at) {
           return now - at < window_;
         }));
}

void RestartBudget::spend(Clock::time_point now) {
  ++spent_;
  times_.push_back(now);
  if (times_.size() > static_cast<size_t>(most_)) times_.pop_front();
}

std::string RestartBudget::text(Clock::time_point now) const {
  if (window_ == Duration::zero()) return fmt::format("restart {} of {}", spent_, most_);
  return fmt::format("restart {}; {} of {} within {:.0f} s", spent_, most_ - left(now), most_,
                     std::chrono::duration<double>(window_).count());
}

void RestartBudget::spend_until(int all, Clock::time_point now) {
  while (spent_ < all) spend(now);
}

}  // namespace trireme::launch
