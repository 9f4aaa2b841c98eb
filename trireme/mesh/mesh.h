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
/// A mesh is a handle: copies and sub-meshes share the groups, which live as long as any of them.
/// Only one thread at a time may use a mesh and its sub-meshes.
///
/// Which ranks call: every rank of the world makes the same meshes in the same order (no
/// communication). The first group() for each set of axes is collective over the world: every rank
/// must call it, in the same order of sets, whichever sub-mesh it uses; ranks that ask for
/// different sets get Mismatch. Later calls return the same group, and a set with one rank is a
/// group of one; neither communicates. make_groups() makes the groups of all axes at once, after
/// which the order of calls no longer matters for them. (Corresponds to torch's init_device_mesh.)
class TRIREME_API DeviceMesh {
 public:
  DeviceMesh() = default;  // no mesh: every call throws UsageError
  /// UsageError, listing every factor and the product, if the sizes of the axes do not multiply to
  /// the world size.
  DeviceMesh(Group world, const MeshAxes& axes);
  explicit operator bool() const { return state_ != nullptr; }

  /// This rank's position in the mesh or sub-mesh, and the number of its ranks.
  int rank() const;
  int size() const;
  /// This rank's coordinate on one axis or flat set, and the size of that.
  int coordinate(const std::string& axis) const;
  int size(const std::string& axis) const;
  /// The world ranks that these axes connect with this rank, itself included, in order of their
  /// coordinate.
  std::vector<int> ranks(const std::vector<std::string>& axes) const;

  /// The sub-mesh of these axes that contains this rank: mesh["tp"].rank() is its coordinate.
  DeviceMesh operator[](const std::string& axis) const { return slice({axis}); }
  DeviceMesh slice(const std::vector<std::string>& axes) const;

  /// The group of the whole mesh or sub-mesh; of one axis or flat set; or of several axes, numbered
  /// in the mesh's order (slowest first), not in the order in which they are listed. The group of
  /// all axes is the world itself.
  Group group(CallSite site = CallSite::here()) const;
  Group group(const std::string& axis, CallSite site = CallSite::here()) const;
  Group group(const std::vector<std::string>& axes, CallSite site = CallSite::here()) const;
  Group group(const char* axis, CallSite site = CallSite::here()) const {
    return group(std::string(axis), site);
  }
  Group group(std::initializer_list<const char*> axes, CallSite site = CallSite::here()) const {
    return group(std::vector<std::string>(axes.begin(), axes.end()), site);
  }
  /// Makes the group of every axis, in the mesh's order.
  void make_groups(CallSite site = CallSite::here()) const;

  const MeshShape& shape() const;
  Group world() const;
  /// Group::abort() of the world and of every group that was made of the mesh: a rank that fails
  /// does not know in which of them its peers wait for it.
  void abort(const std::string& why) const;
  /// The factors, this rank's coordinates, and the ranks of each axis' groups.
  std::string describe() const;

 private:
  struct State;
  const State& checked() const;
  uint64_t within(uint64_t set) const;
  Group group_of(uint64_t set, CallSite site) const;
  std::shared_ptr<State> state_;
  uint64_t view_ = 0;  // the axes of a sub-mesh; 0: the whole mesh
};

/// Numbers the hosts of the group's ranks, from 0 in order of their first ranks, for
/// placement_warning(). The local backend has one host; otherwise ranks count as being on one host
/// if they have the same TRIREME_HOST_ID or, without it, the same kernel boot id. Every rank calls
/// it.
TRIREME_API std::vector<int> gather_hosts(Group group, CallSite site = CallSite::here());

/// Logs (on rank 0) and returns placement_warning()'s sentence for an axis of the mesh, "" if there
/// is nothing to warn about. If `hosts` is empty, it is gathered, so every rank of the world must
/// call.
TRIREME_API std::string check_placement(const DeviceMesh& mesh, std::vector<int> hosts = {},
                                        const std::string& axis = "tp",
                                        CallSite site = CallSite::here());

}  // namespace trireme
