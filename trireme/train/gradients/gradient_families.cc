// SPDX-License-Identifier: Apache-2.0
#include "trireme/train/gradients/gradient_families.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "trireme/base/check.h"

namespace trireme {
namespace {

using Axes = std::vector<std::string>;

bool has(const Axes& axes, const std::string& axis) {
  return std::find(axes.begin(), axes.end(), axis) != axes.end();
}

// The axes of a mesh that several ranks lie on, by name; those of folds behind its own.
Axes wide_axes(const MeshShape& mesh, size_t begin, size_t end) {
  Axes wide;
  const auto all = mesh.axes();
  for (size_t i = begin; i < end; ++i)
    if (all[i].size > 1) wide.push_back(all[i].name);
  return wide;
}

GradientFamily family_of(const MeshShape& mesh, const ParameterLayout* layout) {
  const Axes own = wide_axes(mesh, 0, mesh.own_axes());
  const Axes folded = wide_axes(mesh, mesh.own_axes(), mesh.axes().size());
  const bool expert = layout && layout->on("ep") == OnAxis::split;
  const bool folds = !has(own, "ep") && has(folded, "ep");
  GradientFamily family;
  const auto take = [&](const Axes& from, const char* axis) {
    if (has(from, axis)) family.data.push_back(axis);
  };
  take(own, "dp_replicate");
  if (expert && folds) {
    take(folded, "edp");
  } else {
    take(own, "dp_shard");
    if (!expert) take(own, "ep");
    take(own, "cp");
  }
  for (const std::string& axis : family.data)
    (axis == "dp_replicate" ? family.replicas : family.shards).push_back(axis);
  for (const std::string& axis : own)
    if (layout && layout->on(axis) == OnAxis::sum && !has(family.data, axis))
      family.model.push_back(axis);
  return family;
}

}  // namespace

GradientFamily dense_family(const MeshShape& mesh) { return family_of(mesh, nullptr); }

std::vector<GradientFamily> gradient_families(const MeshShape& mesh,
                                              const std::vector<std::string>& parameters,
                                              const ParameterLayouts& layouts) {
  std::vector<GradientFamily> families;
  for (const std::string& name : parameters) {
    const auto layout = layouts.find(name);
    GradientFamily mine = family_of(mesh, layout == layouts.end() ? nullptr : &layout->second);
    auto found = std::find_if(families.begin(), families.end(),
                              [&](const GradientFamily& f) { return f.same_axes(mine); });
    if (found == families.end()) found = families.insert(found, std::move(mine));
    found->parameters.push_back(name);
  }
  return families;
}

Group group_over(const DeviceMesh& mesh, const std::vector<std::string>& axes) {
  if (!axes.empty()) return mesh.group(axes);
  for (const MeshAxis& axis : mesh.shape().axes())
    if (axis.size == 1) return mesh.group(axis.name);
  fail<UsageError>("{}: no axis of one rank, of which a group of one would be",
                   mesh.shape().describe());
}

void check_one_round(const MeshShape& mesh, const std::vector<std::string>& parameters,
                     const ParameterLayouts& layouts) {
  const GradientFamily dense = dense_family(mesh);
  for (const GradientFamily& family : gradient_families(mesh, parameters, layouts))
    check<UsageError>(family.data == dense.data,
                      "the gradients of '{}' are added over {}, and those of what all ranks hold "
                      "over {}: one run has one round of gradients a step, and experts are not a "
                      "part of it yet. Train them in a loop of your own",
                      family.parameters.front(), fmt::join(family.data, " × "),
                      fmt::join(dense.data, " × "));
}

ShardGroups shard_groups_of(const DeviceMesh& mesh, const GradientFamily& family) {
  const Group all = group_over(mesh, family.data);
  if (family.replicas.empty()) return all;
  return {group_over(mesh, family.shards), group_over(mesh, family.replicas), all};
}

}  // namespace trireme
