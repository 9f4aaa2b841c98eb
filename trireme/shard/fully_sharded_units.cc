// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <map>
#include <tuple>

#include "trireme/base/check.h"
#include "trireme/grad/module_sync.h"
#include "trireme/shard/fully_sharded_impl.h"
#include "trireme/shard/unused_after.h"
#include "trireme/tensor/module_state.h"

// How units are made of a network's parts.

namespace trireme {
namespace {

std::string unit_text(const std::string& name) {
  return name.empty() ? "the root" : "unit '" + name + "'";
}

}  // namespace

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

}  // namespace trireme
