// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <initializer_list>
#include <memory>
#include <string>
#include <vector>

#include "trireme/comm/group.h"
#include "trireme/mesh/coordinates.h"

namespace trireme {

/// Ranks arranged by named axes, and the group of each axis and each set of axes through this rank.
///
///   DeviceMesh mesh(world, parallel_axes({.dp_shard = -1, .tp = 2}));
///   Group tp = mesh.group("tp"), dp = mesh.group("dp");   // dp = dp_replicate × dp_shard
///
/// A handle: copies and sub-meshes share the groups, which live as long as any of them. One thread
/// at a time uses a mesh and its sub-meshes.
///
/// Who calls: every rank of the world makes the same meshes in the same order (no communication).
/// The first group() of each set of axes is collective over the world: every rank of it calls, in
/// the same order of sets, whichever sub-mesh it goes through; ranks that ask for different sets
/// get Mismatch. Later calls return the same group, and sets of one rank are a group of one; both
/// without communication. make_groups() makes those of all axes at once, after which no order of
/// first calls matters for them. (As torch's init_device_mesh.)
class TRIREME_API DeviceMesh {
 public:
  DeviceMesh() = default;  // no mesh: every call is a UsageError
  /// UsageError, with every factor and the product, where the axes do not make the world.
  DeviceMesh(Group world, const MeshAxes& axes);
  explicit operator bool() const { return state_ != nullptr; }

  /// This rank's place in the mesh or sub-mesh, and its ranks.
  int rank() const;
  int size() const;
  /// On one axis or flat set.
  int coordinate(const std::string& axis) const;
  int size(const std::string& axis) const;
  /// Ranks of the world with this rank on these axes, in order of their coordinate.
  std::vector<int> ranks(const std::vector<std::string>& axes) const;

  /// The mesh of these axes through this rank: mesh["tp"].rank() is its coordinate.
  DeviceMesh operator[](const std::string& axis) const { return slice({axis}); }
  DeviceMesh slice(const std::vector<std::string>& axes) const;

  /// Of the whole mesh or sub-mesh; of one axis or flat set; of several axes, counted as the mesh
  /// has them (slowest first), not as they are listed. All axes: the world itself.
  Group group(CallSite site = CallSite::here()) const;
  Group group(const std::string& axis, CallSite site = CallSite::here()) const;
  Group group(const std::vector<std::string>& axes, CallSite site = CallSite::here()) const;
  Group group(const char* axis, CallSite site = CallSite::here()) const {
    return group(std::string(axis), site);
  }
  Group group(std::initializer_list<const char*> axes, CallSite site = CallSite::here()) const {
    return group(std::vector<std::string>(axes.begin(), axes.end()), site);
  }
  /// Every axis', in the mesh's order.
  void make_groups(CallSite site = CallSite::here()) const;

  const MeshShape& shape() const;
  Group world() const;
  /// The factors, this rank's coordinates, and the ranks of each axis' groups.
  std::string describe() const;

 private:
  struct State;
  const State& checked() const;
  uint64_t within(uint64_t set) const;
  Group group_of(uint64_t set, CallSite site) const;
  std::shared_ptr<State> state_;
  uint64_t view_ = 0;  // of a sub-mesh: its axes; 0: the whole mesh
};

/// A number for the host of each rank of the group, from 0 in order of their first ranks: for
/// placement_warning(). The local backend has one host; else ranks that give the same
/// TRIREME_HOST_ID, or without it run under the same boot of a kernel, count as of one. Every rank
/// calls it.
TRIREME_API std::vector<int> gather_hosts(Group group, CallSite site = CallSite::here());

/// Logs (on rank 0) and returns the sentence of placement_warning() for an axis of the mesh, "" if
/// all is well. hosts empty: gathered, so every rank of the world calls.
TRIREME_API std::string check_placement(const DeviceMesh& mesh, std::vector<int> hosts = {},
                                        const std::string& axis = "tp",
                                        CallSite site = CallSite::here());

}  // namespace trireme
