// SPDX-License-Identifier: Apache-2.0
#include "trireme/train/model_axes/mesh_norms.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "trireme/comm/objects.h"
#include "trireme/optim/norm_kernels.h"
#include "trireme/train/model_axes/model_group.h"
#include "trireme/train/model_axes/owned_places.h"

namespace trireme {
namespace {

// What a rank of the model says of a parameter: its name, its elements there, and whether other
// ranks hold other parts of it (1) or the same ones (0).
using Held = std::pair<std::string, std::pair<int64_t, int64_t>>;

std::vector<Held> held_here(const Gradients& gradients, const ParameterLayouts& layouts) {
  std::vector<Held> held;
  for (const auto& [name, p] : gradients.parameters()) {
    const auto layout = layouts.find(name);
    const bool split = layout != layouts.end() && layout->second.on("tp") == OnAxis::split;
    held.push_back({name, {p.numel(), split}});
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
      const auto& [numel, split] = part;
      const int stage = r / mesh.size("tp");
      const auto [first, is_new] = first_stage.emplace(name, stage);
      if (is_new || (split && first->second == stage)) sum += numel;
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
      const auto& [numel, split] = part;
      Whole& whole = wholes[name];
      if (whole.first_rank < 0) whole.first_rank = r;
      if (r / tp != whole.first_rank / tp) continue;
      whole.begins.push_back(split ? norm_blocks(whole.numel) * kNormBlock : 0);
      whole.numel = whole.begins.back() + numel;
    }
  std::vector<NormParts::Whole> list;
  for (const auto& [name, whole] : wholes) list.push_back({name, whole.numel});
  std::map<std::string, int64_t> begins;
  std::set<std::string> counted_elsewhere;
  for (const auto& [name, begin] : owned_places(gradients)) {
    const Whole& whole = wholes.at(name);
    begins[name] = whole.begins.at(static_cast<size_t>(model.rank() % tp)) + begin;
    const auto layout = layouts.find(name);
    const bool split = layout != layouts.end() && layout->second.on("tp") == OnAxis::split;
    const int counted_by = split ? whole.first_rank / tp : whole.first_rank;
    if (counted_by != (split ? model.rank() / tp : model.rank())) counted_elsewhere.insert(name);
  }
  const Group over =
      gradients.sharded() ? mesh.group({"pp", "dp_shard", "tp"}) : mesh.group({"pp", "tp"});
  return std::make_shared<const NormParts>(std::move(list), std::move(begins), add_over(over),
                                           std::move(counted_elsewhere), !exact);
}

}  // namespace trireme
