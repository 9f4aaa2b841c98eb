// SPDX-License-Identifier: Apache-2.0
#include "trireme/mesh/mesh.h"

#include <algorithm>
#include <map>

#include "trireme/comm/backend.h"
#include "trireme/mesh/gather_numbers.h"

namespace trireme {

struct DeviceMesh::State {
  Group world;
  MeshShape shape;
  uint64_t number;  // of this mesh among what was made of the world: equal on all ranks
  std::map<uint64_t, Group> groups;
};

DeviceMesh::DeviceMesh(Group world, const MeshAxes& axes) {
  check<UsageError>(static_cast<bool>(world),
                    "a mesh of no group: call init_process_group() first");
  MeshShape shape(world.size(), axes);
  const uint64_t number = ++world.get()->identity.children;
  state_ = std::make_shared<State>(State{std::move(world), std::move(shape), number, {}});
}

const DeviceMesh::State& DeviceMesh::checked() const {
  check<UsageError>(state_ != nullptr, "no mesh: make one of a group");
  return *state_;
}

const MeshShape& DeviceMesh::shape() const { return checked().shape; }
Group DeviceMesh::world() const { return checked().world; }

void DeviceMesh::abort(const std::string& why) const {
  const State& s = checked();
  Group(s.world).abort(why);
  for (const auto& [set, group] : s.groups) Group(group).abort(why);
}

uint64_t DeviceMesh::within(uint64_t set) const {
  check<UsageError>(!view_ || !(set & ~view_), "{} is not in this sub-mesh of {}",
                    shape().describe_set(set & ~view_), shape().describe_set(view_));
  return set;
}

int DeviceMesh::rank() const {
  return view_ ? shape().coordinate(checked().world.rank(), view_) : checked().world.rank();
}
int DeviceMesh::size() const { return view_ ? shape().size(view_) : shape().world(); }
int DeviceMesh::coordinate(const std::string& axis) const {
  return shape().coordinate(checked().world.rank(), within(shape().set_of(axis)));
}
int DeviceMesh::size(const std::string& axis) const {
  return shape().size(within(shape().set_of(axis)));
}
std::vector<int> DeviceMesh::ranks(const std::vector<std::string>& axes) const {
  return shape().members(checked().world.rank(), within(shape().set_of(axes)));
}

DeviceMesh DeviceMesh::slice(const std::vector<std::string>& axes) const {
  check<UsageError>(!axes.empty(), "a sub-mesh of no axes");
  DeviceMesh sub(*this);
  sub.view_ = within(shape().set_of(axes));
  return sub;
}

Group DeviceMesh::group(CallSite site) const {
  return view_ ? group_of(view_, site) : checked().world;
}
Group DeviceMesh::group(const std::string& axis, CallSite site) const {
  return group_of(within(shape().set_of(axis)), site);
}
Group DeviceMesh::group(const std::vector<std::string>& axes, CallSite site) const {
  check<UsageError>(!axes.empty(), "a group of no axes");
  return group_of(within(shape().set_of(axes)), site);
}

Group DeviceMesh::group_of(uint64_t set, CallSite site) const {
  State& s = *state_;
  set = s.shape.without_ones(set);
  if (const auto made = s.groups.find(set); made != s.groups.end()) return made->second;
  const int me = s.world.rank();
  const std::vector<int> members = s.shape.members(me, set);
  // Everybody must mean the same group, or the wrong ranks would meet.
  if (members.size() > 1) {
    const auto sets = detail::gather_numbers(s.world, static_cast<int64_t>(set), site);
    for (size_t r = 0; r < sets.size(); ++r)
      check<Mismatch>(sets[r] == static_cast<int64_t>(set),
                      "group() at {}:{}: rank {} asks for the group of {}, rank {} for that of {}. "
                      "Every rank of "
                      "the world must make the groups of a mesh in one order; make_groups() does",
                      site.file, site.line, me, s.shape.describe_set(set), r,
                      s.shape.describe_set(static_cast<uint64_t>(sets[r])));
  }
  bool all = static_cast<int>(members.size()) == s.world.size();
  for (size_t i = 0; i < members.size(); ++i) all = all && members[i] == static_cast<int>(i);
  if (all) return s.groups[set] = s.world;
  // Who is in it is known to all: only its members meet.
  auto& world = *s.world.get();
  const std::string name = fmt::format("{}/{}.{}.{}", world.identity.name, s.number,
                                       set ? s.shape.describe_set(set) : "one",
                                       *std::min_element(members.begin(), members.end()));
  return s.groups[set] = Group(detail::make_subgroup(world, members, name));
}

void DeviceMesh::make_groups(CallSite site) const {
  const auto axes = shape().axes();
  for (size_t i = 0; i < axes.size(); ++i) {
    const uint64_t set = uint64_t{1} << i;
    if (!view_ || set & view_) group_of(set, site);
  }
}

std::string DeviceMesh::describe() const {
  constexpr size_t kGroups = 8, kRanks = 16;  // enough to see the pattern
  const MeshShape& m = shape();
  const int me = checked().world.rank();
  const auto axes = m.axes();
  std::string text = "mesh: " + m.describe() + "\nrank " + std::to_string(me) + ":";
  for (size_t i = 0; i < axes.size(); ++i)
    text += fmt::format("{} {} {}", i ? "," : "", axes[i].name, m.coordinate(me, uint64_t{1} << i));
  for (size_t i = 0; i < axes.size(); ++i) {
    if (axes[i].size == 1) continue;
    const auto groups = m.groups(uint64_t{1} << i);
    text += fmt::format("\n  {}: {} group{} of {}:", axes[i].name, groups.size(),
                        groups.size() == 1 ? "" : "s", axes[i].size);
    for (size_t g = 0; g < groups.size() && g <= kGroups; ++g) {
      if (g) text += " |";
      if (g == kGroups) {
        text += " …";
        break;
      }
      for (size_t r = 0; r < groups[g].size() && r <= kRanks; ++r)
        text += r == kRanks ? " …" : " " + std::to_string(groups[g][r]);
    }
  }
  return text;
}

}  // namespace trireme
