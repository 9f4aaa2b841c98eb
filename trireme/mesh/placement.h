// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "trireme/mesh/coordinates.h"

// Which axes of a mesh stay within hosts. Pure; hosts[r] is any number that identifies the host of
// rank r.
namespace trireme {

struct AxisPlacement {
  std::string axis;
  int groups = 0;
  int across = 0;          // groups with ranks on several hosts
  std::vector<int> first;  // the ranks of the first of these
};

inline AxisPlacement place_axis(const MeshShape& shape, const std::string& axis,
                                const std::vector<int>& hosts) {
  check<UsageError>(hosts.size() == static_cast<size_t>(shape.world()),
                    "hosts of {} ranks were given for a mesh of {}", hosts.size(), shape.world());
  AxisPlacement placed{axis, 0, 0, {}};
  for (const auto& group : shape.groups(shape.set_of(axis))) {
    ++placed.groups;
    std::set<int> here;
    for (int r : group) here.insert(hosts[static_cast<size_t>(r)]);
    if (here.size() < 2) continue;
    if (placed.across++ == 0) placed.first = group;
  }
  return placed;
}

/// The placement of the mesh's own axes, in its order.
inline std::vector<AxisPlacement> place_axes(const MeshShape& shape,
                                             const std::vector<int>& hosts) {
  std::vector<AxisPlacement> all;
  const auto axes = shape.axes();
  for (size_t i = 0; i < shape.own_axes(); ++i)
    all.push_back(place_axis(shape, axes[i].name, hosts));
  return all;
}

/// One sentence that says which groups of `axis` span hosts and what to do; "" if none does.
inline std::string placement_warning(const MeshShape& shape, const std::vector<int>& hosts,
                                     const std::string& axis = "tp") {
  const AxisPlacement placed = place_axis(shape, axis, hosts);
  if (!placed.across) return "";
  std::string ranks, places;
  std::set<int> here;
  for (size_t i = 0; i < placed.first.size(); ++i) {
    if (i < 8) ranks += fmt::format("{}{}", i ? ", " : "", placed.first[i]);
    if (i == 8) ranks += ", …";
    here.insert(hosts[static_cast<size_t>(placed.first[i])]);
  }
  for (int h : here) places += fmt::format("{}{}", places.empty() ? "" : ", ", h);
  const auto axes = shape.axes();
  const std::string& fastest = axes[shape.own_axes() - 1].name;
  return fmt::format(
      "{} of {} {} groups span hosts; the first has ranks {} on hosts {}: each of its collectives "
      "crosses the network. {}",
      placed.across, placed.groups, axis, ranks, places,
      fastest == axis
          ? fmt::format("Choose a {} that divides the ranks of a host", axis)
          : fmt::format("Make {} the last axis of the mesh (it is {}), whose neighbours are ranks "
                        "r and r + 1",
                        axis, fastest));
}

}  // namespace trireme
