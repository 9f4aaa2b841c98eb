// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "trireme/base/codec.h"
#include "trireme/base/export.h"

// Who waits for whom, over all groups of a job: calls of different groups, sends and receives have
// no exchange in which ranks could compare them.
namespace trireme::detail {

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
  TRIREME_FIELDS(kind, group, ranks, number, tag, text)
};

/// What a rank says of itself, true at one moment of its life. While it waits it posts nothing.
struct WaitRecord {
  std::map<std::string, GroupCalls> groups;
  Waiting waiting;
  TRIREME_FIELDS(groups, waiting)
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

/// Those that have not made the call that `self` waits in, as far as records tell.
TRIREME_API std::vector<int> find_absent(const WaitRecords& records, int self);

}  // namespace trireme::detail
