// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fmt/core.h>

#include <cstdint>
#include <string>

// Keys of an elastic job's store, all under "members/".
namespace trireme::launch::elastic {

/// The i-th launcher that came, from 1 on: a Member.
inline std::string came(int64_t i) { return fmt::format("members/came/{}", i); }
/// What it says of itself: an encoded RankFacts.
inline std::string facts(const std::string& token) { return "members/facts/" + token; }
/// A launcher has gone: without a word (its last will), or by an error.
inline std::string lost(const std::string& token) { return "members/lost/" + token; }
/// A launcher was asked to stop; later, it has no workers any more.
inline std::string leaves(const std::string& token) { return "members/leaves/" + token; }
inline std::string gone(const std::string& token) { return "members/gone/" + token; }
/// In each launcher's own table: its Standing.
inline const std::string kStanding = "members/standing";
/// At the endpoint, where the job's store is no longer: the address at which it is.
inline const std::string kMoved = "members/moved";
/// The launcher that keeps the store, or was to keep it, leaves it in order: another one is to.
inline const std::string kKeeperLeaves = "members/keeper_leaves";
/// The number of the newest generation.
inline const std::string kNewest = "members/newest";
/// Its Announcement.
inline std::string announced(int64_t n) { return fmt::format("members/{}/announced", n); }
/// Somebody has seen it, and will take part in none before it.
inline std::string accepted(int64_t n, const std::string& token) {
  return fmt::format("members/{}/accepted/{}", n, token);
}
/// Its workers may start: enough have accepted it.
inline std::string begun(int64_t n) { return fmt::format("members/{}/begun", n); }
/// MASTER_ADDR and MASTER_PORT, said by its first member.
inline std::string master(int64_t n) { return fmt::format("members/{}/master", n); }
/// Which steps its members have in memory: all keys below it (nodes/shared_steps.h).
inline std::string memory(int64_t n) { return fmt::format("members/{}/memory", n); }
/// A StopCause, or kAllDone.
inline std::string over(int64_t n) { return fmt::format("members/{}/over", n); }
/// A member has no worker of the generation any more: kEndedWell, or another word.
inline std::string ended(int64_t n, const std::string& token) {
  return fmt::format("members/{}/ended/{}", n, token);
}
/// No member has.
inline std::string all_ended(int64_t n) { return fmt::format("members/{}/all_ended", n); }
/// No generation follows: kAllDone, or why.
inline const std::string kJobOver = "members/job_over";

inline constexpr const char* kAllDone = "all done";
inline constexpr const char* kEndedWell = "well";

}  // namespace trireme::launch::elastic
