// SPDX-License-Identifier: Apache-2.0
#include "trireme/train/in_place/in_place.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>

#include "trireme/base/check.h"
#include "trireme/base/log.h"
#include "trireme/comm/objects.h"

namespace trireme {

bool ends_group(const std::exception& error) {
  return dynamic_cast<const PeerLost*>(&error) || dynamic_cast<const Timeout*>(&error) ||
         dynamic_cast<const Aborted*>(&error) || dynamic_cast<const Mismatch*>(&error);
}

TrainerStart InPlace::start(const Config& config, Group group) {
  TrainerStart start;
  if (group.size() < options_.first_ranks) {
    const Batches all = config.resolve_batches(options_.first_ranks);
    start.batches = on_fewer_ranks(all, group.size(), options_.scaled);
    start.lr_factor = static_cast<double>(start.batches->train) / static_cast<double>(all.train);
  }
  if (!goes_on_) return start;
  const auto all = all_gather_object(group, standing_);
  const auto newest = std::max_element(
      all.begin(), all.end(), [](const auto& a, const auto& b) { return a.step < b.step; });
  check<ResourceError>(newest->step >= 0,
                       "no rank that is left holds the state of a whole step: the ranks cannot go "
                       "on in place");
  source_ = static_cast<int>(newest - all.begin());
  all_hold_ = std::all_of(all.begin(), all.end(),
                          [&](const Standing& s) { return s.step == newest->step; });
  saves_due_ = std::any_of(all.begin(), all.end(), [&](const Standing& s) {
    return s.step == newest->step && s.saves_due;
  });
  if (standing_.step != newest->step) {
    kept_.clear();
    standing_ = {};
  }
  kept_.share_values(group, source_);
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
  if (goes_on_) {
    kept_.fill([&](StateVisitor& v) { t.state(v); }, t.group, source_, all_hold_);
    for (auto& part : t.parts) part->run.loaded();
    if (t.built_in) t.step = t.first().step;
    Group(t.group).barrier();  // until then what is kept may be needed again
  }
  kept_.clear();
  standing_ = {};
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
  kept_.clear();
  standing_ = {};
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
  standing_ = {t.step, saves_due_};
  buffers_.clear();
}

}  // namespace trireme
