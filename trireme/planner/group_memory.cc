// SPDX-License-Identifier: Apache-2.0
#include "trireme/planner/group_memory.h"

#include <set>

namespace trireme {
namespace {

constexpr int64_t kControl = 471040, kPair = 139264, kSmallBlocks = 4 << 20;

int64_t control_bytes(int64_t ranks) {
  if (ranks < 2) return 0;
  const int64_t staging = ranks <= 2 ? 256 : ranks <= 4 ? 512 : 1024;
  return kControl + ranks * kPair + 2 * staging * 1024;
}

}  // namespace

int64_t local_group_bytes(const MeshShape& mesh) {
  std::set<uint64_t> of_one_axis;
  uint64_t world = 0;
  for (size_t i = 0; i < mesh.own_axes(); ++i) {
    const uint64_t axis = mesh.without_ones(uint64_t{1} << i);
    if (axis != 0) of_one_axis.insert(axis);
    world |= axis;
  }
  std::set<uint64_t> groups = of_one_axis;
  groups.insert(world);
  for (const auto& axes : groups_of_several_axes())
    groups.insert(mesh.without_ones(mesh.set_of(axes)));
  int64_t bytes = static_cast<int64_t>(of_one_axis.size()) * kSmallBlocks;
  for (const uint64_t group : groups) bytes += control_bytes(mesh.size(group));
  return bytes;
}

}  // namespace trireme
