// SPDX-License-Identifier: Apache-2.0
#include "trireme/train/model_axes/shared_sums.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>

#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "trireme/comm/objects.h"
#include "trireme/train/gradients/gradient_families.h"
#include "trireme/train/model_axes/owned_places.h"

namespace trireme {
namespace {

// Under ZeRO, ranks with different parts of layers own different ranges of what they all hold, and
// so do the copies of one parameter on a rank. So each adds its ranges to a buffer of all elements,
// and the sum goes over the ranks that shard as well: an element comes once from each part or copy.
class SharedSums final : public StepFeature {
 public:
  /// `sizes`: of what is summed, by its name in the whole model. Without a group the copies are all
  /// on this rank, whole.
  SharedSums(std::optional<Group> over, Gradients& gradients, const ParameterLayouts& layouts,
             const std::map<std::string, int64_t>& sizes)
      : over_(std::move(over)), gradients_(gradients), begins_(owned_places(gradients)) {
    std::map<std::string, int64_t> places;
    for (const auto& [name, numel] : sizes) {
      places[name] = total_;
      total_ += numel;
    }
    for (const auto& [name, begin] : begins_)
      if (const auto place = places.find(whole_name(layouts, name)); place != places.end())
        places_[name] = place->second + begin;
  }

  void closed(int64_t) override {
    at::NoGradGuard no_grad;
    const NamedTensors& owned = gradients_.owned();
    if (!buffer_.defined()) {
      const at::Tensor& like = owned.front().second;
      const auto dtype = like.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
      const auto options = like.options().dtype(dtype).requires_grad(false);
      buffer_ = over_ ? over_->empty({total_}, options) : at::empty({total_}, options);
    }
    buffer_.zero_();
    const auto each = [&](const auto& act) {
      for (const auto& [name, p] : owned) {
        const auto place = places_.find(name);
        if (place == places_.end() || p.numel() == 0 || !p.grad().defined()) continue;
        act(buffer_.narrow(0, place->second, p.numel()), p.grad().view({-1}));
      }
    };
    each([](at::Tensor place, const at::Tensor& grad) { place.add_(grad); });
    if (over_) over_->all_reduce(buffer_).wait();
    each([](const at::Tensor& place, at::Tensor grad) { grad.copy_(place); });
  }

 private:
  std::optional<Group> over_;
  Gradients& gradients_;
  std::map<std::string, int64_t> begins_, places_;
  at::Tensor buffer_;
  int64_t total_ = 0;
};

// What a rank holds, by the names in the whole model: a copy is the parameter once more.
std::vector<std::string> held_by(const std::vector<std::string>& names,
                                 const ParameterLayouts& layouts) {
  std::vector<std::string> held;
  for (const std::string& name : names) held.push_back(whole_name(layouts, name));
  return held;
}

}  // namespace

std::vector<std::shared_ptr<StepFeature>> shared_sums(const DeviceMesh& mesh, Gradients& gradients,
                                                      const ParameterLayouts& layouts) {
  std::vector<std::string> names;
  std::map<std::string, int64_t> numels;
  for (const auto& [name, p] : gradients.parameters()) {
    names.push_back(name);
    numels[name] = p.numel();
  }
  std::vector<std::shared_ptr<StepFeature>> features;
  for (const GradientFamily& family : gradient_families(mesh.shape(), names, layouts)) {
    if (family.model.empty()) continue;
    std::map<std::string, int64_t> sizes;
    for (const std::string& name : family.parameters) sizes[name] = numels.at(name);
    std::vector<std::string> axes;
    if (gradients.sharded()) axes = family.shards;
    axes.insert(axes.end(), family.model.begin(), family.model.end());
    features.push_back(
        std::make_shared<SharedSums>(group_over(mesh, axes), gradients, layouts, sizes));
  }
  return features;
}

void count_tied_stages_once(const DeviceMesh& mesh, ParameterLayouts& layouts) {
  if (mesh.size("pp") == 1) return;
  std::vector<std::string> own;
  for (const auto& [name, layout] : layouts) own.push_back(name);
  const auto all = all_gather_object(mesh.group("pp"), held_by(own, layouts));
  std::set<std::string> earlier;
  for (int r = 0; r < mesh.coordinate("pp"); ++r) {
    const auto& names = all[static_cast<size_t>(r)];
    earlier.insert(names.begin(), names.end());
  }
  for (auto& [name, layout] : layouts)
    if (!layout.copy_of.empty() || earlier.count(name) > 0)
      for (Box& box : layout.boxes) box.counted = false;
}

std::shared_ptr<StepFeature> tied_stage_sums(const DeviceMesh& mesh, Gradients& gradients,
                                             const ParameterLayouts& layouts) {
  if (mesh.size("pp") == 1) return nullptr;
  std::vector<std::string> own;
  for (const auto& [name, p] : gradients.parameters()) own.push_back(name);
  Group stages = mesh.group("pp");
  std::map<std::string, std::vector<int>> holders;  // a rank with two copies is there twice
  const auto all = all_gather_object(stages, held_by(own, layouts));
  for (int r = 0; r < stages.size(); ++r)
    for (const std::string& name : all[static_cast<size_t>(r)]) holders[name].push_back(r);
  std::set<int> sharing;
  for (const auto& [name, ranks] : holders)
    if (ranks.size() > 1) sharing.insert(ranks.begin(), ranks.end());
  std::map<std::string, int64_t> sizes;
  for (const auto& [name, p] : gradients.parameters())
    if (const std::string& whole = whole_name(layouts, name); holders.at(whole).size() > 1)
      sizes[whole] = p.numel();
  if (sharing.empty()) return nullptr;
  std::optional<Group> over;
  if (gradients.sharded() || sharing.size() > 1) {
    std::vector<std::string> axes = {"pp"};
    if (gradients.sharded()) {
      const auto shards = dense_family(mesh.shape()).shards;
      axes.insert(axes.end(), shards.begin(), shards.end());
    }
    Group together = group_over(mesh, axes);
    over = together.split(sharing.count(stages.rank()) > 0 ? 0 : -1);
  }
  if (sizes.empty()) return nullptr;
  return std::make_shared<SharedSums>(std::move(over), gradients, layouts, sizes);
}

}  // namespace trireme
