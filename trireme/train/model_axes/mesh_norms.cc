// SPDX-License-Identifier: Apache-2.0
#include "trireme/train/model_axes/mesh_norms.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "trireme/comm/objects.h"
#include "trireme/optim/norm_kernels.h"
#include "trireme/train/gradients/gradient_families.h"
#include "trireme/train/model_axes/model_group.h"
#include "trireme/train/model_axes/owned_places.h"

namespace trireme {
namespace {

// What a rank of the model says of a parameter: its name, its elements there, whether other ranks
// hold other parts of it (1) or the same ones (0), and how many of its elements count there.
using Held = std::pair<std::string, std::vector<int64_t>>;

// The elements of this rank's tensor that lower ranks of axis tp hold as well (key/value heads that
// they share).
NormParts::Ranges shared_ranges(const ParameterLayout& layout) {
  NormParts::Ranges ranges;
  int64_t at = 0;
  for (const Box& box : layout.boxes) {
    if (!box.counted) ranges.emplace_back(at, at + box.numel());
    at += box.numel();
  }
  return ranges;
}

std::vector<Held> held_here(const Gradients& gradients, const ParameterLayouts& layouts) {
  std::vector<Held> held;
  for (const auto& [name, p] : gradients.parameters()) {
    if (whole_name(layouts, name) != name) continue;  // a copy of one that this rank has as well
    const auto layout = layouts.find(name);
    const bool split = layout != layouts.end() && layout->second.on("tp") == OnAxis::split;
    int64_t counted = p.numel();
    if (split)
      for (const auto& [begin, end] : shared_ranges(layout->second)) counted -= end - begin;
    held.push_back({name, {p.numel(), split, counted}});
  }
  return held;
}

struct Whole {
  int64_t numel = 0;            // parts are padded to blocks, but for the last
  int first_rank = -1;          // of the model that has it
  std::vector<int64_t> begins;  // of the parts, by coordinate on tp; of one stage: others that have
                                // it as well (a tied head) have the same
};

}  // namespace

bool parts_share_elements(const DeviceMesh& mesh, const ParameterLayouts& layouts) {
  if (mesh.size("tp") == 1) return false;
  bool any = false;
  for (const auto& [name, layout] : layouts)
    any = any || (layout.on("tp") == OnAxis::split && !shared_ranges(layout).empty());
  const auto all = all_gather_object(model_group(mesh), any);
  return std::find(all.begin(), all.end(), true) != all.end();
}

int64_t model_numel(const DeviceMesh& mesh, const Gradients& gradients,
                    const ParameterLayouts& layouts) {
  std::map<std::string, int> first_stage;
  int64_t sum = 0;
  if (!is_divided(mesh)) {
    for (const auto& [name, p] : gradients.parameters()) sum += p.numel();
    return sum;
  }
  Group model = model_group(mesh);
  const auto by_rank = all_gather_object(model, held_here(gradients, layouts));
  for (int r = 0; r < model.size(); ++r)
    for (const auto& [name, part] : by_rank[static_cast<size_t>(r)]) {
      const int stage = r / mesh.size("tp");
      const auto [first, is_new] = first_stage.emplace(name, stage);
      if (is_new || (part.at(1) && first->second == stage)) sum += part.at(2);
    }
  return sum;
}

std::shared_ptr<const NormParts> mesh_norm_parts(const DeviceMesh& mesh, Gradients& gradients,
                                                 const ParameterLayouts& layouts, bool exact) {
  if (!is_divided(mesh)) {
    auto parts = gradients.norm_parts();
    return parts ? parts : std::make_shared<const NormParts>(gradients.owned());
  }
  Group model = model_group(mesh);
  std::map<std::string, Whole> wholes;
  const int tp = mesh.size("tp");
  const auto by_rank = all_gather_object(model, held_here(gradients, layouts));
  for (int r = 0; r < model.size(); ++r)
    for (const auto& [name, part] : by_rank[static_cast<size_t>(r)]) {
      const int64_t numel = part.at(0);
      const bool split = part.at(1) != 0;
      Whole& whole = wholes[name];
      if (whole.first_rank < 0) whole.first_rank = r;
      if (r / tp != whole.first_rank / tp) continue;
      whole.begins.push_back(split ? norm_blocks(whole.numel) * kNormBlock : 0);
      whole.numel = whole.begins.back() + numel;
    }
  std::vector<NormParts::Whole> list;
  for (const auto& [name, whole] : wholes) list.push_back({name, whole.numel});
  std::map<std::string, NormParts::Part> tensors;
  std::map<std::string, int64_t> owned;
  for (const auto& [name, p] : gradients.owned()) owned[name] = p.numel();
  std::map<std::string, NormParts::Ranges> ranges_elsewhere;
  for (const auto& [name, begin] : owned_places(gradients)) {
    const std::string& of = whole_name(layouts, name);
    const Whole& whole = wholes.at(of);
    NormParts::Part& part = tensors[name];
    part = {of, whole.begins.at(static_cast<size_t>(model.rank() % tp)) + begin};
    const auto layout = layouts.find(name);
    const bool split = layout != layouts.end() && layout->second.on("tp") == OnAxis::split;
    const int counted_by = split ? whole.first_rank / tp : whole.first_rank;
    part.counted = of == name && counted_by == (split ? model.rank() / tp : model.rank());
    if (!split || !part.counted) continue;
    for (auto [first, end] : shared_ranges(layout->second)) {
      first = std::max<int64_t>(first - begin, 0);
      end = std::min(end - begin, owned.at(name));
      if (first < end) ranges_elsewhere[name].emplace_back(first, end);
    }
  }
  std::vector<std::string> axes = {"pp", "tp"};
  if (gradients.sharded()) {
    const auto shards = dense_family(mesh.shape()).shards;
    axes.insert(axes.end(), shards.begin(), shards.end());
  }
  const Group over = mesh.group(axes);
  return std::make_shared<const NormParts>(std::move(list), tensors, add_over(over), !exact,
                                           std::move(ranges_elsewhere));
}

}  // namespace trireme
