// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trireme/base/encoding.h"
#include "trireme/mesh/coordinates.h"

// Which parameters should be equal on which ranks of a mesh, and whether they are. Pure.
namespace trireme {

/// What a rank has of a parameter.
struct ReplicaDigest {
  std::string name;
  int64_t digest = 0;     // of its shape, dtype and bits
  bool tp_part = false;   // ranks of axis "tp" have other parts of it
  bool dp_shard = false;  // ranks of axis "dp_shard" have other parts of it (ZeRO stage 3)
  TRIREME_FIELDS(name, digest, tp_part, dp_shard)
};

struct ReplicaDifference {
  std::string parameter, axis;
  int rank = -1, other = -1;  // of the world; -1: there is none
};

/// The first parameter, in the order of rank 0's list and then of those after it, that should be
/// equal on two ranks that differ on one axis alone, and is not; or that a rank lists twice, for
/// two of its stages, and that differs (`rank` and `other` are that rank). `by_rank`: one list for
/// each rank of the mesh. The ranks of a stage list the same names.
inline ReplicaDifference first_replica_difference(
    const MeshShape& mesh, const std::vector<std::vector<ReplicaDigest>>& by_rank) {
  for (int rank = 0; rank < mesh.world(); ++rank)
    for (const ReplicaDigest& mine : by_rank[static_cast<size_t>(rank)]) {
      for (const ReplicaDigest& again : by_rank[static_cast<size_t>(rank)])
        if (again.name == mine.name && again.digest != mine.digest)
          return {mine.name, "pp", rank, rank};
      for (const char* axis : {"dp_replicate", "dp_shard", "tp", "pp"}) {
        const bool parts = (mine.tp_part && std::string(axis) == "tp") ||
                           (mine.dp_shard && std::string(axis) != "dp_replicate");
        if (parts) continue;
        for (const int other : mesh.members(rank, mesh.set_of(axis)))
          for (const ReplicaDigest& theirs : by_rank[static_cast<size_t>(other)])
            if (other > rank && theirs.name == mine.name && theirs.digest != mine.digest)
              return {mine.name, axis, rank, other};
      }
    }
  return {};
}

}  // namespace trireme
