// SPDX-License-Identifier: Apache-2.0
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <utility>

#include "trireme/base/check.h"
#include "trireme/shard/fully_sharded_impl.h"
#include "trireme/tensor/missing_operator.h"
#include "trireme/tensor/recompute/recompute.h"
#include "trireme/tensor/torch_compat.h"

// What happens to units in a forward, in a backward, and between two steps.

namespace trireme {

FullySharded::Unit::Unit(std::shared_ptr<State> state) : state_(std::move(state)) {}
FullySharded::Unit::~Unit() = default;
const std::string& FullySharded::Unit::name() const { return state_->params->name(); }

std::vector<at::Tensor> FullySharded::Unit::run(const Fn& fn,
                                                const std::vector<at::Tensor>& inputs) {
  auto owner = state_->owner.lock();
  check<UsageError>(owner != nullptr, "a unit was run after its FullySharded had gone");
  return owner->run(state_, fn, inputs);
}

at::Tensor FullySharded::Unit::run(const std::function<at::Tensor(const at::Tensor&)>& fn,
                                   const at::Tensor& x) {
  return run(
      [&fn](const std::vector<at::Tensor>& in) { return std::vector<at::Tensor>{fn(in[0])}; },
      std::vector<at::Tensor>{x})[0];
}

std::vector<FullySharded::Impl::Seen> FullySharded::Impl::look(const NamedTensors& list) const {
  std::vector<Seen> seen;
  for (const auto& [name, t] : list) {
    const at::Tensor& g = t.grad();
    seen.push_back({static_cast<uint32_t>(t._version()),
                    g.defined() ? g.unsafeGetTensorImpl() : nullptr,
                    g.defined() ? static_cast<uint32_t>(g._version()) : 0});
  }
  return seen;
}

// All ranks come to the same answer but those that own nothing, whose shards never change: they
// follow, since the others end the job.
void FullySharded::Impl::check_stepped() {
  if (backwards_done < backwards) return;
  const bool owns = std::any_of(shards->begin(), shards->end(),
                                [](const auto& s) { return s.second.numel() > 0; });
  if (owns && look(*shards) == at_last_backward)
    fail<UsageError>(
        "FullySharded: a forward after {} backward{}, and no shard has changed since, nor its "
        "gradient: was the optimizer made of the module's parameters? Make it of "
        "sharded.parameters(). To add up the gradients of several backwards, say so with "
        "accumulate()",
        backwards_done, backwards_done == 1 ? "" : "s");
  backwards_done = 0;
}

void FullySharded::Impl::forward_begins(UnitState& unit, bool recorded) {
  if (recorded && !recomputing()) {
    if (options.automatic) check_stepped();
    if (backward_began) {
      order = std::move(order_now);
      order_now.clear();
      backward_began = false;
    }
    // A unit's first forward in this step; further ones find it whole.
    if (options.whole_for_step && unit.params->is_whole()) return;
    order_now.push_back(unit.index);
  }
  make_whole(unit);
  if (recomputing()) unit.params->hold_for_backward();
  if (!recorded || recomputing()) return;
  // What computes next, while this one does.
  if (order_now.size() < order.size())
    prefetch(order.begin() + static_cast<long>(order_now.size()), order.end());
}

void FullySharded::Impl::make_whole(UnitState& unit) {
  if (unit.params->state() == ParamUnit::State::sharded) ++stats.gathers;
  unit.params->make_whole();
}

// Asks for units from `next` on.
template <class Iterator>
void FullySharded::Impl::prefetch(Iterator next, Iterator end) {
  if (told) return;
  int64_t live = 0, ahead = 0;
  for (const auto& u : units)
    if (u.get() != root && u->state_->params->state() != ParamUnit::State::sharded)
      live += u->state_->params->elements();
  for (; next != end; ++next) {
    ParamUnit& unit = *state(*next).params;
    ahead += unit.elements();
    const bool sharded = unit.state() == ParamUnit::State::sharded;
    if (sharded) live += unit.elements();
    // One more may come from its file already: into a buffer.
    if (ahead > options.prefetch_elements || live > options.max_live_elements)
      return unit.read_ahead();
    if (!sharded) continue;
    ++stats.gathers;
    ++stats.prefetched;
    unit.gather();
  }
}

void FullySharded::Impl::drop(UnitState& unit) {
  if (!unit.held && !unit.halved) unit.params->reshard();
}

void FullySharded::Impl::hold(int stage, bool held) {
  check<UsageError>(root != nullptr && stage >= 0 && stage < options.stages.count,
                    "FullySharded: {}({}) comes after root(network), and there are {} stages",
                    held ? "unshard" : "reshard", stage, options.stages.count);
  told = true;
  std::vector<UnitState*> own;
  for (const auto& u : units)
    if (u.get() == root ? options.stages.count == 1 : u->state_->stage == stage)
      own.push_back(u->state_.get());
  for (UnitState* unit : own) {
    unit->held = held;
    if (!held) {
      drop(*unit);
    } else if (unit->params->state() == ParamUnit::State::sharded) {
      ++stats.gathers;
      unit->params->gather();
    }
  }
  if (held)
    for (UnitState* unit : own) unit->params->make_whole();
}

namespace {

bool any_trains(const std::vector<at::Tensor>& tensors) {
  return std::any_of(tensors.begin(), tensors.end(),
                     [](const at::Tensor& t) { return t.defined() && t.requires_grad(); });
}

}  // namespace

// What a backward through `unit` meets. The graph may outlive the unit.
std::shared_ptr<UnitEnds> FullySharded::Impl::ends_of(const std::shared_ptr<UnitState>& unit) {
  auto ends = std::make_shared<UnitEnds>();
  const std::weak_ptr<UnitState> weak = unit;
  ends->at_outputs = [weak] {
    if (auto u = weak.lock())
      if (auto owner = u->owner.lock()) owner->backward_at_outputs(*u);
  };
  ends->at_inputs = [weak, again = recomputing(), open = true]() mutable {
    auto u = weak.lock();
    if (!u) return;
    if (open) --u->open_ends;  // a graph that is kept may be gone through again
    open = false;
    if (auto owner = u->owner.lock()) owner->backward_at_inputs(*u, again);
  };
  ends->dropped = [weak] {
    if (auto u = weak.lock()) --u->open_ends;
  };
  return ends;
}

std::vector<at::Tensor> FullySharded::Impl::run(const std::shared_ptr<UnitState>& unit,
                                                const Fn& fn,
                                                const std::vector<at::Tensor>& inputs) {
  check<UsageError>(static_cast<bool>(scatter),
                    "FullySharded: unit '{}' runs before root(network) was called",
                    unit->params->name());
  const bool recorded = at::GradMode::is_enabled();
  forward_begins(*unit, recorded);
  const auto ends = ends_of(unit);
  try {
    bool bound = false;
    const std::vector<at::Tensor> entered = bound_inputs(inputs, ends, &bound);
    if (bound) ++unit->open_ends;
    const at::Device device = shards->empty() ? at::kCPU : shards->front().second.device();
    std::vector<at::Tensor> outputs =
        bound_outputs(naming_missing_operator(device, [&] { return fn(entered); }), ends);
    if (!bound && recorded && !recomputing() && any_trains(outputs)) unit->endless = true;
    if (unit->params->state() == ParamUnit::State::whole &&
        (unit->reshard_after_forward || !recorded || !any_trains(outputs)))
      drop(*unit);
    return outputs;
  } catch (...) {
    unit->params->reshard();
    throw;
  }
}

void FullySharded::Impl::backward_at_outputs(UnitState& unit) {
  if (options.whole_for_step) return make_whole(unit);  // it is already, but after an exception
  backward_began = true;
  // Nothing tells of the second half: it begins behind the unit's outputs.
  if (hooks->paused() && compat::backward_is_of_a_part()) unit.halved = true;
  if (options.automatic) hooks->beginning()();
  // Inside no_sync() for the next round, which may not come to this unit.
  if (scatter->is_open() || hooks->paused())
    for (size_t buffer : unit.buffers) scatter->touch(buffer);
  make_whole(unit);
  const auto here = std::find(order_now.rbegin(), order_now.rend(), unit.index);
  if (here != order_now.rend()) prefetch(here + 1, order_now.rend());
}

void FullySharded::Impl::backward_at_inputs(UnitState& unit, bool second_run) {
  if (options.whole_for_step) return;
  if (unit.open_ends > 0 || unit.endless) return;  // more comes, by the end of backward at last
  bool all_came = true;
  if (scatter->is_open() && !hooks->paused())
    for (size_t buffer : unit.buffers) {
      // Gradients of a recomputed unit come behind the node that recomputed it.
      if (second_run) {
        scatter->launch_when_full(buffer);
      } else {
        all_came = all_came && scatter->full(buffer);
        scatter->launch(buffer);
      }
    }
  // What has not come may still be computed: whole until the end of backward then.
  if (all_came && unit.reshard_after_forward) drop(unit);
}

void FullySharded::Impl::end_round() {
  if (options.whole_for_step) {
    if (!scatter->step_done()) return;
    backward_began = true;
  }
  for (const auto& u : units) {
    u->state_->halved = false;
    drop(*u->state_);
    u->state_->endless = false;
  }
  ++backwards_done;
  if (options.automatic) at_last_backward = look(*shards);
  if (scatter->step_done()) replaced->check();
  unused();
}

// What is whole holds the old values.
void FullySharded::Impl::publish() {
  for (const auto& u : units) u->state_->params->reshard();
  // The next forward begins as the last one did.
  for (size_t i = 0; i < std::min<size_t>(2, order_now.size()); ++i)
    state(order_now[i]).params->read_ahead();
}

}  // namespace trireme
