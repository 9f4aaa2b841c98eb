// SPDX-License-Identifier: Apache-2.0
#include "trireme/shard/fully_sharded.h"

#include <ATen/core/grad_mode.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <map>
#include <tuple>

#include "trireme/base/check.h"
#include "trireme/grad/hooks/hook_adapter.h"
#include "trireme/grad/module_sync.h"
#include "trireme/grad/rounds/replaced_parameters.h"
#include "trireme/shard/gradient_scatter.h"
#include "trireme/shard/param_unit.h"
#include "trireme/shard/save_guard.h"
#include "trireme/shard/unit_function.h"
#include "trireme/shard/unused_after.h"
#include "trireme/tensor/missing_operator.h"
#include "trireme/tensor/module_state.h"
#include "trireme/tensor/recompute/recompute.h"
#include "trireme/tensor/tensor_overlaps.h"
#include "trireme/tensor/tied_tensors.h"
#include "trireme/tensor/torch_compat.h"

namespace trireme {

struct FullySharded::Unit::State {
  std::unique_ptr<ParamUnit> params;
  std::weak_ptr<FullySharded::Impl> owner;
  size_t index = 0;
  int stage = 0;
  bool held = false;  // between unshard() and reshard()
  bool halved =
      false;  // a backward came here that may have a second half, which must find it whole
  bool reshard_after_forward = true;
  std::vector<size_t> buffers;  // of the scatter: those that require gradients
  int open_ends = 0;            // graphs whose backward has still to come to the inputs
  bool endless = false;         // one of this round's has no input that would tell of its end
};

struct FullySharded::Impl : std::enable_shared_from_this<FullySharded::Impl> {
  using UnitState = Unit::State;

  Impl(ShardGroups g, FullyShardedOptions o)
      : groups(std::move(g)), options(std::move(o)), gather_buffers(groups.shards) {
    if (options.file) file = std::make_unique<ShardFile>(*options.file);
  }

  ShardGroups groups;
  FullyShardedOptions options;
  GatherBufferPool gather_buffers;
  std::unique_ptr<ShardFile> file;  // outlives units
  std::vector<std::unique_ptr<Unit>> units;
  Unit* root = nullptr;
  struct Taken {
    std::string unit;                // "": the root
    std::vector<std::string> names;  // full ones; several where the unit ties it
    bool has(const std::string& name) const {
      return std::find(names.begin(), names.end(), name) != names.end();
    }
  };
  std::map<at::TensorImpl*, Taken> taken;  // parameters
  TiedNames tied;                          // of all units
  NamedTensors buffers;                    // of all units, by their full names
  TensorOverlaps memory;                   // of the parameters taken, as it was
  std::unique_ptr<GradientScatter> scatter;
  std::unique_ptr<HookAdapter> hooks;
  std::unique_ptr<ReplacedParameters> replaced;
  std::function<void()> unused;
  Stats stats;

  // Units in the order of their forwards: of the last step, and of this one so far.
  std::vector<size_t> order, order_now;
  bool backward_began = false;
  bool told = false;  // the caller says what is gathered, and when

  int backwards = 1, backwards_done = 0;
  struct Seen {
    uint32_t shard = 0;
    at::TensorImpl* gradient = nullptr;
    uint32_t gradient_version = 0;
    bool operator==(const Seen&) const = default;
  };
  std::vector<Seen> at_last_backward;

  UnitState& state(size_t i) { return *units[i]->state_; }

  Unit& add(const std::string& name, torch::nn::Module& module, bool is_root);
  void complete(FullySharded& self);
  std::vector<Seen> look(const NamedTensors& shards) const;
  void check_stepped();

  std::vector<at::Tensor> run(const std::shared_ptr<UnitState>& unit, const Fn& fn,
                              const std::vector<at::Tensor>& inputs);
  std::shared_ptr<UnitEnds> ends_of(const std::shared_ptr<UnitState>& unit);
  void forward_begins(UnitState& unit, bool recorded);
  void make_whole(UnitState& unit);
  template <class Iterator>
  void prefetch(Iterator next, Iterator end);
  void publish();
  void follow();
  void backward_at_outputs(UnitState& unit);
  void backward_at_inputs(UnitState& unit, bool second_run);
  void drop(UnitState& unit);
  void hold(int stage, bool held);
  void end_round();
  const NamedTensors* shards = nullptr;
};

namespace {

std::string unit_text(const std::string& name) {
  return name.empty() ? "the root" : "unit '" + name + "'";
}

}  // namespace

// ── Making units ────────────────────────────────────────────────────────────────────────────────

FullySharded::Unit& FullySharded::Impl::add(const std::string& name, torch::nn::Module& module,
                                            bool is_root) {
  check<UsageError>(!root,
                    "FullySharded: {} comes after root(): make the units first, the root last",
                    is_root ? "a second root" : "unit '" + name + "'");
  NamedTensors all;
  const size_t tied_before = tied.size();
  std::map<std::tuple<at::ScalarType, bool, int>, NamedTensors> kinds;
  for (const auto& item : module.named_parameters()) {
    const std::string full = name.empty() ? item.key() : name + "." + item.key();
    at::TensorImpl* p = item.value().unsafeGetTensorImpl();
    if (const auto it = taken.find(p); it != taken.end()) {
      const bool same_unit = it->second.unit == name;
      check<UsageError>(same_unit || it->second.has(full),
                        "FullySharded: parameter '{}' of {} is '{}' of {}. A tied weight must be "
                        "in one unit: leave both of its users to the root (or, if they are one "
                        "module, give unit() the module's path as its name)",
                        full, unit_text(name), it->second.names[0], unit_text(it->second.unit));
      if (!it->second.has(full)) {
        tied.push_back({full, it->second.names[0]});
        it->second.names.push_back(full);
      }
      continue;
    }
    if (!is_root && item.value().numel() < options.persistence_threshold) continue;
    memory.refuse("FullySharded", full, item.value());
    memory.add(full, item.value());
    taken[p] = {name, {full}};
    all.emplace_back(full, item.value());
    kinds[{item.value().scalar_type(), item.value().requires_grad(), options.stages(full)}]
        .push_back(all.back());
  }
  NamedTensors buffers;
  for (const auto& [key, b] : named_buffers(module, &tied)) {
    if (taken.count(b.unsafeGetTensorImpl())) continue;  // a parameter as well
    memory.refuse("FullySharded", name.empty() ? key : name + "." + key, b);
    buffers.emplace_back(key, b);
    this->buffers.emplace_back(name.empty() ? key : name + "." + key, b);
  }
  const TiedNames of_unit(tied.begin() + static_cast<long>(tied_before), tied.end());
  verify_same(groups.world, all, "parameter", of_unit);
  verify_same(groups.world, buffers, "buffer", of_unit);
  broadcast_tensors(groups.world, all);
  broadcast_tensors(groups.world, buffers);

  std::vector<std::unique_ptr<FlatParameters>> flats;
  for (auto& [kind, members] : kinds)
    flats.push_back(std::make_unique<FlatParameters>(std::move(members), groups.shards,
                                                     unit_text(name), file.get()));
  auto unit = std::make_shared<UnitState>();
  unit->params = std::make_unique<ParamUnit>(name.empty() ? "the root" : name, std::move(flats),
                                             groups.shards, gather_buffers);
  unit->owner = weak_from_this();
  unit->index = units.size();
  if (!all.empty()) unit->stage = options.stages(all.front().first);
  unit->reshard_after_forward =
      options.reshard_after_forward && !options.whole_for_step && !is_root;
  units.push_back(std::unique_ptr<Unit>(new Unit(std::move(unit))));
  if (is_root) root = units.back().get();
  return *units.back();
}

void FullySharded::Impl::complete(FullySharded& self) {
  if (scatter) return follow();
  check<UsageError>(root != nullptr,
                    "FullySharded: call root(network) after the units: it takes the parameters "
                    "that no unit holds");
  std::vector<FlatParameters*> all, trained;
  ScatterOptions s;
  const auto take = [&](UnitState& unit) {
    for (FlatParameters* flat : unit.params->flats()) {
      all.push_back(flat);
      if (!flat->requires_grad()) continue;
      unit.buffers.push_back(trained.size());
      trained.push_back(flat);
      if (options.stages.count > 1)
        s.stages.push_back(options.stages(flat->members().front().first));
    }
  };
  // Backward comes to the last units first. The root has what is used before all units, too: where
  // flat buffers leave in this order, it is the last one.
  if (!options.whole_for_step) take(*root->state_);
  for (auto it = units.rbegin(); it != units.rend(); ++it)
    if (it->get() != root) take(*(*it)->state_);
  if (options.whole_for_step) take(*root->state_);
  check<UsageError>(!trained.empty(),
                    "FullySharded: no parameter requires a gradient, so there is nothing to train");
  s.op = options.op;
  s.leave = options.whole_for_step ? ScatterOptions::Leave::when_full
                                   : ScatterOptions::Leave::when_launched;
  s.tree = options.tree;
  s.replicas = groups.replicas;
  s.world = groups.world;
  s.wire = options.wire;
  scatter = std::make_unique<GradientScatter>(std::move(trained), groups.shards, s);
  hooks = std::make_unique<HookAdapter>(
      *scatter, options.automatic ? HookAdapter::Rounds::automatic : HookAdapter::Rounds::driven);
  unused = unused_after(*scatter, groups.world, options.find_unused_parameters);
  hooks->on_close([this] { end_round(); });
  self.tied_ = tied;
  self.set_flats(all);
  shards = &self.shards_;
  NamedTensors trains, frozen;
  for (FlatParameters* flat : all)
    for (const auto& member : flat->members())
      (flat->requires_grad() ? trains : frozen).push_back(member);
  replaced = std::make_unique<ReplacedParameters>(
      "FullySharded", std::move(trains), std::move(frozen), groups.world, scatter->record());
  hooks->contribute_if([this] { return replaced->look(); });
}

// Replaced parameters give their values to the shards before anything is gathered; the others are
// told with the next round's record.
void FullySharded::Impl::follow() {
  if (!replaced->any()) return;
  if (!replaced->look()) {
    const std::string why = fmt::format("rank {}: {}", groups.world.rank(), replaced->refusal());
    groups.shards.abort(why);
    groups.world.abort(why);
    throw UsageError(why);
  }
  for (const auto& u : units)
    if (u->state_->params->replaced()) u->state_->params->take_replaced();
  replaced->accept();
  hooks->rehook_replaced_accumulators();
}

// ── Forward ─────────────────────────────────────────────────────────────────────────────────────

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

// ── Backward ────────────────────────────────────────────────────────────────────────────────────

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

// ── The public face ─────────────────────────────────────────────────────────────────────────────

FullySharded::FullySharded(ShardGroups groups, FullyShardedOptions options)
    : ShardedParameters(std::move(groups)) {
  check<UsageError>(options.prefetch_elements >= 0 && options.max_live_elements >= 0 &&
                        options.persistence_threshold >= 0,
                    "FullySharded: prefetch_elements {}, max_live_elements {}, "
                    "persistence_threshold {}: none may be negative",
                    options.prefetch_elements, options.max_live_elements,
                    options.persistence_threshold);
  check<UsageError>(!(options.automatic && options.whole_for_step),
                    "FullySharded: with whole_for_step the caller opens and closes the rounds of "
                    "a step: set automatic to false");
  impl_ = std::make_shared<Impl>(groups_, std::move(options));
}

FullySharded::~FullySharded() = default;

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

FullySharded::Unit& FullySharded::unit(const std::string& name, torch::nn::Module& module) {
  check<UsageError>(!name.empty(), "FullySharded: a unit needs its module's path as its name");
  if (impl_->options.automatic) add_layouts(name, module);
  Unit& made = impl_->add(name, module, false);
  guard_saving(module);
  return made;
}

void FullySharded::root(torch::nn::Module& module) {
  if (impl_->options.automatic) add_layouts("", module);
  impl_->add("", module, true);
  guard_saving(module);
  complete();
}

std::vector<at::Tensor> FullySharded::run(const Fn& fn, const std::vector<at::Tensor>& inputs) {
  complete();
  return impl_->root->run(fn, inputs);
}

at::Tensor FullySharded::run(const std::function<at::Tensor(const at::Tensor&)>& fn,
                             const at::Tensor& x) {
  complete();
  return impl_->root->run(fn, x);
}

void FullySharded::complete() { impl_->complete(*this); }

// What is whole holds the old values.
void FullySharded::Impl::publish() {
  for (const auto& u : units) u->state_->params->reshard();
  // The next forward begins as the last one did.
  for (size_t i = 0; i < std::min<size_t>(2, order_now.size()); ++i)
    state(order_now[i]).params->read_ahead();
}

void FullySharded::publish() {
  if (impl_->replaced && impl_->replaced->any()) refuse_late(impl_->replaced->first());
  impl_->publish();
}

void FullySharded::accumulate(int backwards) {
  check<UsageError>(backwards >= 1, "FullySharded: a step of {} backwards", backwards);
  impl_->backwards = backwards;
}

FullySharded::NoSync::NoSync(FullySharded& sharded)
    : sharded_(sharded), before_((sharded.complete(), sharded.impl_->hooks->paused())) {
  sharded_.impl_->hooks->set_paused(true);
}
FullySharded::NoSync::~NoSync() { sharded_.impl_->hooks->set_paused(before_); }

void FullySharded::reduce_accumulated() {
  complete();
  check<UsageError>(impl_->options.automatic,
                    "FullySharded: where the caller opens and closes rounds, nothing accumulates "
                    "outside of them");
  impl_->hooks->reduce_accumulated(false);
}

void FullySharded::unshard(int stage) {
  complete();
  impl_->hold(stage, true);
}
void FullySharded::reshard(int stage) { impl_->hold(stage, false); }

FullySharded::Gathered::Gathered(FullySharded& sharded) : sharded_(sharded) {
  sharded_.complete();
  for (const auto& u : sharded_.impl_->units) u->state_->params->gather();
  for (const auto& u : sharded_.impl_->units) u->state_->params->make_whole();
}
FullySharded::Gathered::~Gathered() {
  for (const auto& u : sharded_.impl_->units) sharded_.impl_->drop(*u->state_);
}

void FullySharded::reset() {
  if (impl_->hooks) impl_->hooks->reset();
  for (const auto& u : impl_->units) {
    u->state_->held = u->state_->halved = false;
    u->state_->params->reshard();
    u->state_->endless = false;
  }
  impl_->order_now.clear();
  impl_->backwards_done = 0;
}

GradientScatter& FullySharded::gradients() {
  complete();
  return *impl_->scatter;
}

void FullySharded::end_round() { impl_->end_round(); }

const NamedTensors& FullySharded::buffers() const { return impl_->buffers; }

StateWalk state_of(FullySharded& sharded) {
  return [&sharded](StateVisitor& v) {
    state_of(static_cast<ShardedParameters&>(sharded))(v);
    for (const auto& [name, b] : unique_tensors(sharded.buffers()))
      show_contiguous(b.detach(),
                      [&](at::Tensor t) { v.copy_of_rank_0("model." + name, std::move(t)); });
  };
}

FullySharded::Stats FullySharded::stats() const {
  Stats s = impl_->stats;
  s.gather_buffer_bytes = impl_->gather_buffers.bytes();
  if (impl_->file) s.file = impl_->file->usage();
  return s;
}

}  // namespace trireme
