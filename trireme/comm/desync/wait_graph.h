// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "trireme/base/clock.h"
#include "trireme/base/encoding.h"
#include "trireme/base/export.h"
#include "trireme/comm/recent_calls.h"

// Which ranks wait for which, over all groups of a job. Calls of different groups, sends and
// receives have no exchange in which ranks could compare them.
namespace trireme::detail {

/// The number of (peer, tag) pairs whose messages are counted; beyond it the counts start again.
inline constexpr size_t kMessagesKept = 1024;

/// What a rank has called in one group so far.
struct GroupCalls {
  uint64_t calls = 0;  // collectives
  bool left = false;   // in order: there will be no more
  /// (peer, tag) → numbers of messages posted to it and from it. all_messages is false if there
  /// were too many to report.
  std::map<std::pair<int, int>, std::pair<uint64_t, uint64_t>> messages;
  bool all_messages = true;
  std::set<int> any_source_tags;  // messages taken by a recv from any rank cannot be counted
  TRIREME_FIELDS(calls, left, messages, all_messages, any_source_tags)
};

enum class WaitKind : uint8_t { none, collective, send, recv };

/// What a rank waits for. It continues when each of `ranks` has made its call.
struct Waiting {
  WaitKind kind = WaitKind::none;
  std::string group;
  std::vector<int> ranks;  // of the root group
  /// For a collective, its number; for a message, its number among those of its direction, peer and
  /// tag.
  uint64_t number = 0;
  int tag = 0;
  std::string text;
  uint64_t digest = 0;  // of a message: of what both ends must agree on
  /// For an all_to_all: elements to and from each of `ranks`.
  std::vector<int64_t> sends{}, expects{};
  TRIREME_FIELDS(kind, group, ranks, number, tag, text, digest, sends, expects)
};

/// The state of a rank at one moment. While it waits it posts nothing.
struct WaitRecord {
  std::map<std::string, GroupCalls> groups;
  Waiting waiting;
  std::map<std::string, RecentCalls> recent{};  // of groups that made this rank wait; check=hash
  TRIREME_FIELDS(groups, waiting, recent)
};

/// By rank of the root group; nullopt for a rank that has published nothing.
using WaitRecords = std::vector<std::optional<WaitRecord>>;

/// Returns a sentence about a cycle of ranks that wait for each other, the same on each of them;
/// nullopt if `self` is in none.
///
/// Records may be of different times, and yet a cycle in them is real. Let m be the rank whose
/// record is the latest. A rank that waits for m had not received m's call by then, since counts
/// only grow, so it was still waiting; it posted nothing meanwhile, so a rank that waits for it was
/// still waiting too, and so on around the cycle. At that moment all of them wait, and none can
/// continue.
TRIREME_API std::optional<std::string> find_circle(const WaitRecords& records, int self);

/// Returns a sentence if a rank that `self` waits for has left the group.
TRIREME_API std::optional<std::string> find_left(const WaitRecords& records, int self);

/// Returns a sentence if a send and its recv differ in size or type, or if the parts of an
/// all_to_all differ at their two ends.
TRIREME_API std::optional<std::string> find_wrong_message(const WaitRecords& records, int self);

/// Returns the ranks that, according to the records, have not made the call that `self` waits for.
TRIREME_API std::vector<int> find_absent(const WaitRecords& records, int self);

/// Whether no lower rank waits in the same call: one rank reports for all that wait in it.
TRIREME_API bool is_first_to_wait(const WaitRecords& records, int self);
/// Describes for the log which ranks `self` waits for, and what each of them is doing. It need not
/// be an error.
TRIREME_API std::string late_text(const WaitRecords& records, int self, Duration waited,
                                  Duration left);
/// The same for a rank that has no records of the others.
TRIREME_API std::string alone_text(const Waiting& what, Duration waited, Duration left);

}  // namespace trireme::detail
