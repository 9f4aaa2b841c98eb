// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "trireme/base/encoding.h"
#include "trireme/mesh/coordinates.h"

// Which parameters and buffers should be equal on which ranks of a mesh, and whether they are.
// Pure.
namespace trireme {

/// What a rank has of a parameter or a buffer: all of it, or one of the boxes that it holds.
struct ReplicaDigest {
  std::string name;
  std::string here;          // its name on this rank, which is another one for a further copy of it
  std::vector<int64_t> box;  // offsets and lengths; empty: the whole
  int64_t digest = 0;        // of the elements here; digests of parts add up to that of the whole
  bool dp_shard = false;     // ranks of axes "dp_shard" and "cp" have other elements (ZeRO stage 3)
  bool buffer = false;
  // Of a buffer: whether this rank has computed since the first comparison, and whether the buffer
  // has changed meanwhile.
  bool computed = false, changed = false;
  TRIREME_FIELDS(name, here, box, digest, dp_shard, buffer, computed, changed)
};

struct ReplicaDifference {
  std::string name, axis;
  std::vector<int64_t> box;
  bool buffer = false;
  int rank = -1, other = -1;  // of the world; -1: there is none
};

namespace detail {

using DigestLists = std::vector<std::vector<ReplicaDigest>>;

// What the ranks of a group of shards have together, by name and box: a digest for each copy.
using Wholes =
    std::map<std::pair<std::string, std::vector<int64_t>>, std::map<std::string, uint64_t>>;

inline Wholes wholes_of(const MeshShape& mesh, const DigestLists& by_rank, int rank) {
  Wholes wholes;
  for (const int member : mesh.members(rank, mesh.set_of("dp_shard_cp")))
    for (const ReplicaDigest& part : by_rank[static_cast<size_t>(member)])
      if (part.dp_shard || member == rank)
        wholes[{part.name, part.box}][part.here] += static_cast<uint64_t>(part.digest);
  return wholes;
}

// What another rank lists of the same place. Most often it is at the same place of its list.
inline const ReplicaDigest* find_digest(const std::vector<ReplicaDigest>& list,
                                        const ReplicaDigest& like, size_t likely) {
  const auto fits = [&](const ReplicaDigest& d) {
    return d.here == like.here && d.box == like.box && d.buffer == like.buffer;
  };
  if (likely < list.size() && fits(list[likely])) return &list[likely];
  for (const ReplicaDigest& d : list)
    if (fits(d)) return &d;
  return nullptr;
}

// Running statistics follow the samples of each rank, and differ. A buffer that training leaves as
// it began (a table, a mask) has changed on few ranks if on any: on those where it should not have.
inline bool is_constant(const DigestLists& by_rank, const ReplicaDigest& buffer, size_t likely,
                        const std::vector<int>& ranks) {
  int kept = 0, changed = 0;
  for (const int r : ranks)
    if (const auto* d = find_digest(by_rank[static_cast<size_t>(r)], buffer, likely);
        d && d->computed)
      ++(d->changed ? changed : kept);
  return kept > 0 && kept >= changed;
}

}  // namespace detail

/// The first parameter or buffer, in the order of rank 0's list and then of those after it, that
/// should be equal on two ranks that differ on one axis alone, and is not; or that a rank lists
/// twice, for two of its stages, and that differs (`rank` and `other` are that rank). Boxes are
/// compared with the same boxes, wherever they are: key/value heads that ranks of axis tp share are
/// equal there. Buffers are equal on axis tp; on the data axes, cp included, those are that
/// training does not change. `by_rank`: one list for each rank of the mesh. The ranks of a stage
/// list the same names, but for shards.
inline ReplicaDifference first_replica_difference(const MeshShape& mesh,
                                                  const detail::DigestLists& by_rank) {
  std::vector<detail::Wholes> wholes;
  for (int rank = 0; rank < mesh.world(); ++rank)
    wholes.push_back(detail::wholes_of(mesh, by_rank, rank));
  for (int rank = 0; rank < mesh.world(); ++rank)
    for (size_t i = 0; i < by_rank[static_cast<size_t>(rank)].size(); ++i) {
      const ReplicaDigest& mine = by_rank[static_cast<size_t>(rank)][i];
      const auto found = [&](const std::string& axis, int other) {
        return ReplicaDifference{mine.name, axis, mine.box, mine.buffer, rank, other};
      };
      const auto& copies = wholes[static_cast<size_t>(rank)].at({mine.name, mine.box});
      const uint64_t whole = copies.at(mine.here);
      for (const auto& [here, digest] : copies)
        if (digest != whole) return found("pp", rank);
      for (const std::string axis : {"dp_replicate", "dp_shard", "cp", "tp", "pp"}) {
        const bool shards = axis == "dp_shard" || axis == "cp";
        const bool data = axis == "dp_replicate" || shards;
        if (mine.dp_shard && shards) continue;
        const auto ranks = mesh.members(rank, mesh.set_of(axis));
        if (mine.buffer &&
            (axis == "pp" || (data && !detail::is_constant(by_rank, mine, i, ranks))))
          continue;
        for (const int other : ranks) {
          if (other <= rank) continue;
          if (data) {  // the same elements there, also of shards
            const auto* theirs = detail::find_digest(by_rank[static_cast<size_t>(other)], mine, i);
            if (theirs && theirs->digest != mine.digest) return found(axis, other);
            continue;
          }
          const auto& there = wholes[static_cast<size_t>(other)];
          const auto place = there.find({mine.name, mine.box});
          if (place == there.end()) continue;
          for (const auto& [here, digest] : place->second)
            if (digest != whole) return found(axis, other);
        }
      }
    }
  return {};
}

}  // namespace trireme
