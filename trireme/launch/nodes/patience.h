// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "trireme/base/clock.h"

// How long the launchers of several nodes wait for each other.
namespace trireme::launch::patience {

inline constexpr Duration kSlice = std::chrono::milliseconds(300);  // a signal may go unseen
inline constexpr Duration kSayAfter = std::chrono::seconds(3);
/// Beyond the workers' own grace: 5 s for what hangs in the kernel, and the way to the store.
inline constexpr Duration kAllStop = std::chrono::seconds(30);
/// Workers that save and leave do so on all nodes at one step.
inline constexpr Duration kFollow = std::chrono::seconds(3);
/// A connection that breaks is seen at once, silence after about four seconds.
inline constexpr Duration kLossIsSeen = std::chrono::seconds(6);
/// All have come, and have next to nothing to say.
inline constexpr Duration kAreCompared = std::chrono::seconds(10);
/// A disk may still be writing what an attempt before left.
inline constexpr Duration kStepsAreTold = std::chrono::seconds(30);
inline constexpr Duration kBegin = std::chrono::seconds(60);
inline constexpr Duration kStoreAnswers = std::chrono::seconds(5);
inline constexpr Duration kOthersLeave = std::chrono::seconds(10);

}  // namespace trireme::launch::patience
