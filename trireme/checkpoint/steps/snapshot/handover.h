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

/// Asks the launcher for the newest step that it holds, as ranks do that go on with fewer or more
/// of them (elastic.mode in_process): all snapshots of its ranks, sealed. Nobody may have the
/// memory of one mapped any more. Empty: there is no launcher, it holds none, or it does not
/// answer in time. Corrupt: it sent something else.
TRIREME_API std::vector<HandedSnapshot> ask_for_snapshots();

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
  /// Ranks that have let go of a slot, and live.
  size_t ranks_that_let_go() const;
  /// They are all that hand over snapshots now: each has a whole one.
  bool all_have_let_go() const;
  /// Somebody asks for what is held (ask_for_snapshots), and waits for the answer.
  bool is_asked() const;
  /// What processes have left here that do not hand it over again; they may go on to live.
  std::vector<HandedSnapshot> take_left();
  void answer(const std::vector<const HandedSnapshot*>& snapshots);
  /// Whether a rank has begun its second snapshot. Its first is whole then, and so are those of all
  /// ranks, which begin together.
  bool has_a_second() const;
  /// Has grown since it was asked before, if ranks have handed over or taken back memory.
  uint64_t changes() const { return changes_; }
  /// Descriptors of all that is held.
  std::vector<HandedSnapshot> copies() const;
  /// When the workers are gone: what is still on its way, and then all that is held.
  std::vector<HandedSnapshot> take_all();

 private:
  struct Rank {
    UniqueFd socket;  // empty: it has gone
    int rank = 0;
    bool let_go = false;
    bool asks = false;
    int64_t came = 0, went = 0;  // first handed over, and left: by a count of such events
    std::array<UniqueFd, SnapshotHandover::kSlots> slots;
  };
  bool accept_one();
  bool receive_one(Rank& rank);

  std::string path_;
  UniqueFd listener_;
  void forget_what_is_older();
  std::vector<Rank> ranks_;
  int64_t events_ = 0;
  uint64_t changes_ = 0;
};

}  // namespace trireme
