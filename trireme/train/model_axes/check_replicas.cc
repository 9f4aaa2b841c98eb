// SPDX-License-Identifier: Apache-2.0
#include "trireme/train/model_axes/check_replicas.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "trireme/base/check.h"
#include "trireme/base/trace.h"
#include "trireme/comm/objects.h"
#include "trireme/config/sections/training.h"
#include "trireme/train/build/precision_parts.h"
#include "trireme/train/model_axes/element_digest.h"
#include "trireme/train/model_axes/owned_places.h"
#include "trireme/train/model_axes/replica_digests.h"

namespace trireme {
namespace {

// "parameter 'wte.weight'", "the part of parameter 'blocks.0.attn.qkv.weight' from [32, 0] on".
std::string name_of(const ReplicaDifference& d) {
  const auto name = fmt::format("{} '{}'", d.buffer ? "buffer" : "parameter", d.name);
  if (d.box.empty()) return name;
  const auto middle = d.box.begin() + static_cast<std::ptrdiff_t>(d.box.size() / 2);
  return fmt::format("the part of {} from [{}] on", name, fmt::join(d.box.begin(), middle, ", "));
}

std::string text_of(const ReplicaDifference& d, int64_t step) {
  if (d.rank == d.other)
    return fmt::format(
        "{} should be equal in two stages of rank {}, and differs after step {} "
        "(training.check_replicas): something but the optimizer wrote to one of them; the last "
        "checkpoint is from before",
        name_of(d), d.rank, step);
  return fmt::format(
      "{} should be equal on the ranks of axis {}, and differs between ranks {} and {} after step "
      "{} (training.check_replicas). Look for what these ranks do differently: data, random "
      "numbers, a library or a processor; the last checkpoint is from before",
      name_of(d), d.axis, d.rank, d.other, step);
}

class CheckReplicas final : public StepFeature {
 public:
  CheckReplicas(int64_t every, const Run& run)
      : every_(every),
        mesh_(run.mesh),
        gradients_(*run.gradients),
        layouts_(run.layouts),
        sharded_(run.collective_forward),
        weights_(run.weights),
        buffers_(buffers_of(*run.model)) {}

  void micro_batch_done(const NamedTensors&, double) override { computed_ = true; }
  void closed(int64_t step) override { step_ = step + 1; }

  void stepped(const FinishedStep&) override {
    if (step_ % every_ != 0) return;
    Span span("train", "check replicas");
    std::vector<ReplicaDigest> mine;
    add_parameters(mine);
    add_buffers(mine);
    const ReplicaDifference found =
        first_replica_difference(mesh_.shape(), all_gather_object(mesh_.world(), mine));
    if (found.rank >= 0)
      throw NumericError(text_of(found, step_), {found.other, -1, found.name, step_});
  }

 private:
  void add_parameters(std::vector<ReplicaDigest>& mine) {
    // At stage 3 no rank has whole parameters between steps.
    const auto places = sharded_ ? owned_places(gradients_) : std::map<std::string, int64_t>();
    for (const auto& [name, p] : sharded_ ? gradients_.owned() : weights_) {
      const int64_t begin = sharded_ ? places.at(name) : 0, end = begin + p.numel();
      const auto add = [&, &name = name, &p = p](std::vector<int64_t> box, int64_t at, int64_t n) {
        // Its elements are at, at + 1, … of the parameter as this rank has it.
        const int64_t first = std::max(begin, at), last = std::min(end, at + n);
        if (first >= last) return;
        mine.push_back({whole_name(layouts_, name), name, std::move(box),
                        element_digest(p, first - begin, last - begin, first - at), sharded_});
      };
      const auto layout = layouts_.find(name);
      if (layout == layouts_.end() || layout->second.on("tp") != OnAxis::split) {
        add({}, 0, std::max(end, int64_t{1}));
        continue;
      }
      int64_t at = 0;
      for (const Box& box : layout->second.boxes) {
        std::vector<int64_t> place = box.offsets;
        place.insert(place.end(), box.lengths.begin(), box.lengths.end());
        add(std::move(place), at, box.numel());
        at += box.numel();
      }
    }
  }

  void add_buffers(std::vector<ReplicaDigest>& mine) {
    const bool first_time = !begun_;
    if (first_time) begun_.emplace(buffers_.size());
    for (size_t i = 0; i < buffers_.size(); ++i) {
      const auto& [name, b] = buffers_[i];
      const int64_t digest = element_digest(b, 0, b.numel(), 0);
      Begun& begun = begun_->at(i);
      if (first_time) begun.digest = digest;
      begun.changed = begun.changed || begun.digest != digest;
      mine.push_back(
          {name, name, {}, digest, false, true, computed_ && !first_time, begun.changed});
    }
    if (first_time) computed_ = false;
  }

  struct Begun {
    int64_t digest = 0;  // at the first comparison
    bool changed = false;
  };

  const int64_t every_;
  const DeviceMesh mesh_;
  Gradients& gradients_;
  const ParameterLayouts layouts_;
  const bool sharded_;
  const NamedTensors weights_, buffers_;
  std::optional<std::vector<Begun>> begun_;
  bool computed_ = false;  // a micro-batch since the first comparison
  int64_t step_ = 0;
};

}  // namespace

std::shared_ptr<StepFeature> check_replicas_feature(const Config& config, const Run& run) {
  const int64_t every = config.section<TrainingSection>().check_replicas;
  if (every == 0 || run.world().size() == 1) return nullptr;
  return std::make_shared<CheckReplicas>(every, run);
}

}  // namespace trireme
