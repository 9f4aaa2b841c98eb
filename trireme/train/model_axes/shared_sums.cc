// SPDX-License-Identifier: Apache-2.0
#include "trireme/train/model_axes/shared_sums.h"

#include <ATen/core/grad_mode.h>

#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "trireme/comm/objects.h"
#include "trireme/train/model_axes/owned_places.h"

namespace trireme {
namespace {

// Under ZeRO, ranks with different parts of layers own different ranges of what they all hold. So
// each writes its ranges into a buffer of all elements, and the sum goes over the ranks that shard
// as well: an element is written by one of them for each part.
class SharedSums final : public StepFeature {
 public:
  SharedSums(Group over, Gradients& gradients, const std::map<std::string, int64_t>& sizes)
      : over_(std::move(over)), gradients_(gradients), begins_(owned_places(gradients)) {
    for (const auto& [name, numel] : sizes) {
      places_[name] = total_;
      total_ += numel;
    }
  }

  void closed(int64_t) override {
    at::NoGradGuard no_grad;
    const NamedTensors& owned = gradients_.owned();
    if (!buffer_.defined()) {
      const at::Tensor& like = owned.front().second;
      const auto dtype = like.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
      buffer_ = over_.empty({total_}, like.options().dtype(dtype).requires_grad(false));
    }
    buffer_.zero_();
    const auto each = [&](const auto& act) {
      for (const auto& [name, p] : owned) {
        const auto place = places_.find(name);
        if (place == places_.end() || p.numel() == 0 || !p.grad().defined()) continue;
        act(buffer_.narrow(0, place->second + begins_.at(name), p.numel()), p.grad().view({-1}));
      }
    };
    each([](at::Tensor place, const at::Tensor& grad) { place.copy_(grad); });
    over_.all_reduce(buffer_).wait();
    each([](const at::Tensor& place, at::Tensor grad) { grad.copy_(place); });
  }

 private:
  Group over_;
  Gradients& gradients_;
  std::map<std::string, int64_t> begins_, places_;
  at::Tensor buffer_;
  int64_t total_ = 0;
};

}  // namespace

std::shared_ptr<StepFeature> shared_sums(const DeviceMesh& mesh, Gradients& gradients,
                                         const ParameterLayouts& layouts) {
  std::map<std::string, int64_t> sizes;
  for (const auto& [name, p] : gradients.parameters())
    if (const auto it = layouts.find(name);
        it != layouts.end() && it->second.on("tp") == OnAxis::sum)
      sizes[name] = p.numel();
  if (sizes.empty() || mesh.size("tp") == 1) return nullptr;
  const Group over = gradients.sharded() ? mesh.group({"dp_shard", "tp"}) : mesh.group("tp");
  return std::make_shared<SharedSums>(over, gradients, sizes);
}

void count_tied_stages_once(const DeviceMesh& mesh, ParameterLayouts& layouts) {
  if (mesh.size("pp") == 1) return;
  std::vector<std::string> own;
  for (const auto& [name, layout] : layouts) own.push_back(name);
  const auto all = all_gather_object(mesh.group("pp"), own);
  for (int r = 0; r < mesh.coordinate("pp"); ++r)
    for (const std::string& name : all[static_cast<size_t>(r)])
      if (const auto it = layouts.find(name); it != layouts.end())
        for (Box& box : it->second.boxes) box.counted = false;
}

std::shared_ptr<StepFeature> tied_stage_sums(const DeviceMesh& mesh, Gradients& gradients) {
  if (mesh.size("pp") == 1) return nullptr;
  std::vector<std::string> own;
  for (const auto& [name, p] : gradients.parameters()) own.push_back(name);
  Group stages = mesh.group("pp");
  std::map<std::string, std::set<int>> holders;
  const auto all = all_gather_object(stages, own);
  for (int r = 0; r < stages.size(); ++r)
    for (const std::string& name : all[static_cast<size_t>(r)]) holders[name].insert(r);
  std::set<int> sharing;
  std::map<std::string, int64_t> sizes;
  for (const auto& [name, ranks] : holders)
    if (ranks.size() > 1) sharing.insert(ranks.begin(), ranks.end());
  for (const auto& [name, p] : gradients.parameters())
    if (holders.at(name).size() > 1) sizes[name] = p.numel();
  if (sharing.empty()) return nullptr;
  Group together = gradients.sharded() ? mesh.group({"pp", "dp_shard"}) : stages;
  const Group over = together.split(sharing.count(stages.rank()) > 0 ? 0 : -1);
  if (sizes.empty()) return nullptr;
  return std::make_shared<SharedSums>(over, gradients, sizes);
}

}  // namespace trireme
