// SPDX-License-Identifier: Apache-2.0
#include "trireme/train/in_place/in_place.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>

#include "trireme/base/check.h"
#include "trireme/base/log.h"
#include "trireme/comm/objects.h"

namespace trireme {

void InPlace::forget() {
  kept_.clear();
  standing_ = {};
}

bool InPlace::find_step(Group group) {
  goes_on_ = saves_due_ = false;
  const std::vector<Standing> all = all_gather_object(group, standing_);
  const auto newest = std::max_element(
      all.begin(), all.end(), [](const auto& a, const auto& b) { return a.when() < b.when(); });
  std::vector<std::vector<KeptBox>> boxes(all.size());
  for (size_t r = 0; r < all.size(); ++r)
    if (newest->step >= 0 && all[r].when() == newest->when()) boxes[r] = all[r].boxes;
  goes_on_ = are_whole(boxes, newest->whole);
  if (!goes_on_) {
    if (group.rank() == 0)
      log_info("the ranks that are left do not hold the whole state of a step: they go back");
    forget();
    return false;
  }
  sent_ = boxes_to_send(boxes);
  for (const Standing& s : all) saves_due_ |= s.when() == newest->when() && s.saves_due;
  if (standing_.when() != newest->when()) forget();
  return true;
}

TrainerStart InPlace::start(const Config& config, Group group) {
  TrainerStart start;
  if (group.size() < options_.first_ranks) {
    const Batches all = config.resolve_batches(options_.first_ranks);
    start.batches = on_fewer_ranks(all, group.size(), options_.scaled);
    start.lr_factor = static_cast<double>(start.batches->train) / static_cast<double>(all.train);
  }
  if (!goes_on_) return start;
  kept_.share_values(group);
  start.fresh = false;
  const std::vector<std::string> names = data_origin_names();
  if (kept_.integer(names[0], -1) >= 0) {
    DataOrigin origin;
    set_data_origin(origin, [&](const char* name) { return kept_.integer(name, 0); });
    start.data_origin = origin;
  }
  return start;
}

void InPlace::fill(Trainer::Impl& t) {
  in_step_ = false;
  origin_.reset();
  buffers_.clear();
  const StateWalk walk = [&](StateVisitor& v) { t.state(v); };
  if (goes_on_) {
    kept_.fill(walk, t.group, sent_);
    for (auto& part : t.parts) part->run.loaded();
    if (t.built_in) t.step = t.first().step;
  }
  // No rank passes before all have what they need of what is kept.
  whole_.clear();
  for (const WholeState& of_rank : all_gather_object(t.group, whole_state_of(walk)))
    whole_.insert(of_rank.begin(), of_rank.end());
  forget();
  sent_.clear();
  on_the_way_ = false;
  options_.is_able();
}

void InPlace::begin_step(Trainer::Impl& t) {
  at::NoGradGuard no_grad;
  const Run& run = t.first();
  origin_ = run.loader ? run.plan->origin_at(run.loader->step()) : std::nullopt;
  if (buffers_.empty())
    for (auto& part : t.parts)
      for (const at::Tensor& buffer : part->run.model->buffers())
        buffers_.emplace_back(buffer.detach(), at::Tensor());
  for (auto& [live, before] : buffers_)
    if (before.defined() && before.sizes() == live.sizes())
      before.copy_(live);
    else
      before = live.clone();
  in_step_ = true;
}

void InPlace::keep(Trainer::Impl& t) {
  at::NoGradGuard no_grad;
  if (on_the_way_) return;  // what was kept before is not in the parts yet
  forget();
  for (const auto& part : t.parts)
    if (part->run.in_update) {
      log_info(
          "rank {} was stopped in the middle of an update in step {}: what it holds is no step",
          t.group.rank(), t.step + 1);
      return;
    }
  if (in_step_)
    for (auto& [live, before] : buffers_) live.copy_(before);
  kept_.take([&](StateVisitor& v) {
    t.state(v);
    if (origin_) show_data_origin(v, *origin_);
  });
  standing_ = {generation_, t.step, saves_due_, kept_.boxes(), whole_};
  buffers_.clear();
}

}  // namespace trireme
