// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "trireme/base/export.h"
#include "trireme/launch/flags/options.h"

namespace trireme::launch {

/// Where parts of a job that do not reach each other learn which of them goes on: each generation
/// that follows a loss is claimed there, once. Files beside RunOptions::claims (a run folder's, or
/// those of --rdzv-conf shared_file), else keys in etcd.
class TRIREME_API ClaimPlace {
 public:
  virtual ~ClaimPlace() = default;

  struct Claim {
    int64_t next = -1;   // the number of the generation that follows
    std::string keeper;  // a token: who keeps its store
    bool operator==(const Claim&) const = default;
  };
  /// What follows generation `number` of `job` (an Announcement's): `ours`, or what was claimed
  /// before. ResourceError or PeerLost: the place cannot be reached now. Corrupt: another program's
  /// words are there.
  virtual Claim claim(const std::string& job, int64_t number, const Claim& ours) = 0;
  /// The numbers of a job that begins are above those of jobs before it, by so much.
  virtual int64_t first_free() = 0;
  /// Where that is, for texts.
  virtual std::string text() const = 0;
};

/// nullptr: the options name none.
TRIREME_API std::unique_ptr<ClaimPlace> claim_place(const RunOptions& options);

TRIREME_API std::string to_text(const ClaimPlace::Claim& claim);
/// Corrupt: not one of ours.
TRIREME_API ClaimPlace::Claim read_claim(const std::string& text);

}  // namespace trireme::launch
