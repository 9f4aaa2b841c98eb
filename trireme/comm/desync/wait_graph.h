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

// Who waits for whom, over all groups of a job: calls of different groups, sends and receives have
// no exchange in which ranks could compare them.
namespace trireme::detail {

/// Pairs of peer and tag whose messages are counted; with more of them the counts start anew.
inline constexpr size_t kMessagesKept = 1024;

/// What a rank has called in one group so far.
struct GroupCalls {
  uint64_t calls = 0;  // collectives
  bool left = false;   // in order: there will be no more
  /// (peer, tag) → messages posted to it and from it. Not all: there were too many to tell.
  std::map<std::pair<int, int>, std::pair<uint64_t, uint64_t>> messages;
  bool all_messages = true;
  std::set<int> any_source_tags;  // what a recv from anybody takes cannot be counted
  TRIREME_FIELDS(calls, left, messages, all_messages, any_source_tags)
};

enum class WaitKind : uint8_t { none, collective, send, recv };

/// What a rank waits in. It goes on when each of `ranks` has made its call.
struct Waiting {
  WaitKind kind = WaitKind::none;
  std::string group;
  std::vector<int> ranks;  // of the root group
  /// Of a collective, its number; of a message, its number among those of its direction, peer and
  /// tag.
  uint64_t number = 0;
  int tag = 0;
  std::string text;
  uint64_t digest = 0;  // of a message: of what both ends must agree on
  /// Of an all_to_all: elements to and from each of `ranks`.
  std::vector<int64_t> sends{}, expects{};
  TRIREME_FIELDS(kind, group, ranks, number, tag, text, digest, sends, expects)
};

/// What a rank says of itself, true at one moment of its life. While it waits it posts nothing.
struct WaitRecord {
  std::map<std::string, GroupCalls> groups;
  Waiting waiting;
  std::map<std::string, RecentCalls> recent{};  // of groups that made this rank wait; check=hash
  TRIREME_FIELDS(groups, waiting, recent)
};

/// By rank of the root group; nullopt: that one has said nothing yet.
using WaitRecords = std::vector<std::optional<WaitRecord>>;

/// A circle of ranks that wait for each other, as a sentence that is the same whichever of them
/// asks; nullopt: `self` is in none.
///
/// Records may be of different times, however old: a circle is one all the same. Let m be the rank
/// whose record is the latest. Who waits for m had not got m's call at that time, since counts only
/// grow, so it waited still; it posted nothing meanwhile, so who waits for it waited still, and so
/// on around. All of them wait at that one moment, and nobody can end it.
TRIREME_API std::optional<std::string> find_circle(const WaitRecords& records, int self);

/// A rank that `self` waits for has left the group, as a sentence.
TRIREME_API std::optional<std::string> find_left(const WaitRecords& records, int self);

/// A send and the recv that waits for it, of different sizes or types, or parts of an all_to_all
/// that differ at their two ends, as a sentence.
TRIREME_API std::optional<std::string> find_wrong_message(const WaitRecords& records, int self);

/// Those that have not made the call that `self` waits in, as far as records tell.
TRIREME_API std::vector<int> find_absent(const WaitRecords& records, int self);

/// Whether no lower rank waits in the same call: one speaks for all that wait in it.
TRIREME_API bool is_first_to_wait(const WaitRecords& records, int self);
/// For the log: for whom `self` waits, and in what each of them is. It need not be an error.
TRIREME_API std::string late_text(const WaitRecords& records, int self, Duration waited,
                                  Duration left);
/// The same of a rank that hears nothing of the others.
TRIREME_API std::string alone_text(const Waiting& what, Duration waited, Duration left);

}  // namespace trireme::detail
