// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <poll.h>

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "trireme/base/export.h"
#include "trireme/base/fd.h"
#include "trireme/checkpoint/steps/snapshot/held_saves.h"

// How the memory of a rank's snapshots comes to its launcher, which holds it when the rank dies: on
// a socket in the launcher's private folder, whose path is in TRIREME_SNAPSHOTS.
namespace trireme {

inline constexpr const char* kSnapshotsVariable = "TRIREME_SNAPSHOTS";

/// A rank's end. Nothing waits, and nothing throws: a launcher that does not answer holds nothing,
/// and the rank goes on. One thread at a time.
class TRIREME_API SnapshotHandover {
 public:
  static constexpr int kSlots = 2;
  /// Looks for a launcher. `rank`: in the group that saves.
  explicit SnapshotHandover(int rank);
  /// A launcher was there, and has not gone since, as far as is known.
  bool is_held() const { return bool(socket_); }
  ~SnapshotHandover() = default;
  SnapshotHandover(const SnapshotHandover&) = delete;

  /// It holds the memory in place of what this slot had before; -1: nothing. What a rank does not
  /// take back, the launcher holds when the rank is gone. A rank that lets go of a slot has a whole
  /// snapshot in another one, or needs none: what a rank before it has left there may go, too.
  void hold(int slot, int fd);

 private:
  UniqueFd socket_;
  const int rank_;
};

/// The launcher's end, which costs a socket where no worker uses it. One thread at a time.
class TRIREME_API SnapshotHolder {
 public:
  /// Listens at this path. ResourceError.
  explicit SnapshotHolder(const std::string& path);
  ~SnapshotHolder();
  SnapshotHolder(const SnapshotHolder&) = delete;

  /// What poll(2) should watch; then serve(), which does not wait. Whoever is not of this user, or
  /// does not keep to the messages, is cut off; there are at most 1,024 connections, of two
  /// memories each.
  void add_to(std::vector<pollfd>& fds) const;
  void serve();
  /// Ranks that have let go of a slot.
  size_t ranks_that_let_go() const;
  /// Lets go of what processes that have gone left here: the others have gone on without it.
  void forget_gone();
  /// When the workers are gone: what is still on its way, and then all that is held.
  std::vector<HandedSnapshot> take_all();

 private:
  struct Rank {
    UniqueFd socket;  // empty: it has gone
    int rank = 0;
    bool let_go = false;
    std::array<UniqueFd, SnapshotHandover::kSlots> slots;
  };
  bool accept_one();
  bool receive_one(Rank& rank);

  std::string path_;
  UniqueFd listener_;
  std::vector<Rank> ranks_;
};

}  // namespace trireme
