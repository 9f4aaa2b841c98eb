// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "trireme/base/export.h"
#include "trireme/launch/membership/membership.h"

namespace trireme::launch {

/// A generation as the job's store shows it.
struct Announcement {
  Generation generation;
  int restarts = 0;  // of --max-restarts, so far
  /// Of this start of the job, in a place where generations are claimed; a generation's number
  /// there is this and its own together (nodes/claim_place.h).
  std::string job = {};
  int64_t claims_from = 0;
  /// It begins when enough of these have accepted it: the last that has begun, and those announced
  /// since that may have.
  std::vector<Generation> before = {};

  bool operator==(const Announcement&) const = default;
};

/// JSON with a version. Corrupt: not one of ours, no members, or more than 4,096, or more than 16
/// generations before it.
TRIREME_API std::string to_text(const Announcement& announcement);
TRIREME_API Announcement read_announcement(const std::string& text);

/// A launcher that has come, in the same way.
TRIREME_API std::string to_text(const Member& member);
TRIREME_API Member read_member(const std::string& text);

}  // namespace trireme::launch
