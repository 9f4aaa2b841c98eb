// SPDX-License-Identifier: Apache-2.0
#include "trireme/shard/sharded_parameters.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <optional>

#include "trireme/base/check.h"
#include "trireme/optim/clip.h"
#include "trireme/optim/torch_optimizer_state.h"
#include "trireme/shard/flat_parameters.h"
#include "trireme/tensor/layout_state.h"

namespace trireme {
namespace {

// Names of shards → places in whole parameters.
class ShardVisitor final : public ForwardingVisitor {
 public:
  using Find = std::function<std::optional<Slice>(const std::string&, int64_t)>;
  /// `stand_in`: the parameter of the optimizer of a rank that owns nothing; "" on others.
  ShardVisitor(StateVisitor& inner, Find find, const std::string& stand_in)
      : ForwardingVisitor(inner), find_(std::move(find)), stand_in_("." + stand_in) {}
  using ForwardingVisitor::value;
  using StateVisitor::tensor;
  void tensor(const Slice& slice, at::Tensor local) override {
    if (local.numel() == 0) return;  // a rank that owns nothing
    const auto part = find_(slice.name, local.numel());
    inner_.tensor(part ? *part : slice, local);
  }
  // The stand-in never gets a gradient, so that its count of steps is not the parameter's.
  void value(const std::string& name, int64_t& v) override {
    if (saving() && stand_in_.size() > 1 && name.ends_with(stand_in_)) return;
    inner_.value(name, v);
  }

 private:
  Find find_;
  const std::string stand_in_;
};

class FlatPager final : public ParameterPager {
 public:
  /// By shard; null: it has none.
  explicit FlatPager(std::vector<FlatParameters*> flats) : flats_(std::move(flats)) {}
  void prefetch(size_t first, size_t count) override {
    for (size_t i = first; i < first + count; ++i)
      if (flats_[i] && (i == first || flats_[i] != flats_[i - 1])) flats_[i]->read_ahead();
  }
  void hold(size_t first, size_t count) override {
    for (size_t i = first; i < first + count; ++i)
      if (flats_[i]) flats_[i]->hold();
  }
  void release(size_t first, size_t count, bool changed) override {
    for (size_t i = first; i < first + count; ++i)
      if (flats_[i])
        flats_[i]->release(changed ? FlatParameters::Changed::yes : FlatParameters::Changed::no);
  }

 private:
  std::vector<FlatParameters*> flats_;
};

}  // namespace

ShardedParameters::ShardedParameters(ShardGroups groups) : groups_(std::move(groups)) {
  check<UsageError>(groups_.shards.size() * (groups_.replicas ? groups_.replicas.size() : 1) ==
                        groups_.world.size(),
                    "sharding: {} shards × {} replicas are not the {} ranks of the world",
                    groups_.shards.size(), groups_.replicas ? groups_.replicas.size() : 1,
                    groups_.world.size());
}

ShardedParameters::~ShardedParameters() = default;

void ShardedParameters::end_with(const std::string& why) {
  const std::string text = fmt::format("rank {}: {}", groups_.world.rank(), why);
  groups_.shards.abort(text);
  groups_.world.abort(text);
  throw UsageError(text);
}

void ShardedParameters::refuse_late(const std::string& parameter) {
  end_with(
      fmt::format("parameter '{}' was exchanged (torch::load(), to(), set_data()) before an "
                  "optimizer stepped on its shards, which did not see it: do it before the "
                  "forward, or after publish()",
                  parameter));
}

void ShardedParameters::refuse_step(const std::string& why) {
  end_with(fmt::format(
      "ShardedOptimizer: the optimizer's state does not fit this rank's shards ({}). "
      "torch::save() on each rank writes a file for that rank, to be loaded with the same number "
      "of ranks; the state of an optimizer of whole parameters cannot be loaded",
      why));
}

void ShardedParameters::set_flats(const std::vector<FlatParameters*>& flats) {
  all_flats_ = flats;
  std::vector<NormParts::Whole> wholes;
  std::map<std::string, int64_t> begins;
  const FlatParameters* trained = nullptr;
  std::vector<FlatParameters*> flat_of;  // by shard
  bool in_file = false;
  for (FlatParameters* flat : flats) {
    in_file = in_file || flat->in_file();
    for (const ParameterShard& s : flat->shards()) {
      check<UsageError>(places_.emplace(s.name, Place{s.shape, s.begin}).second,
                        "sharding: two parameters have the name '{}'", s.name);
      if (!flat->requires_grad()) continue;
      shards_.emplace_back(s.name, s.tensor);
      flat_of.push_back(flat);
      begins[s.name] = s.begin;
    }
    if (!flat->requires_grad()) continue;
    trained = flat;
    for (const auto& [name, p] : flat->members()) wholes.push_back({name, p.numel()});
  }
  if (shards_.empty() && trained) {
    const std::string& name = trained->members().front().first;
    shards_.emplace_back(name, at::empty({0}, trained->options()).requires_grad_());
    begins[name] = 0;
    flat_of.push_back(nullptr);
  }
  if (in_file) pager_ = std::make_shared<FlatPager>(std::move(flat_of));
  parts_ = std::make_shared<const NormParts>(std::move(wholes), std::move(begins),
                                             add_over(groups_.shards));
}

std::shared_ptr<ParameterPager> ShardedParameters::pager() {
  complete();
  return pager_;
}

std::vector<at::Tensor> ShardedParameters::parameters() {
  std::vector<at::Tensor> list;
  for (const auto& [name, t] : shards()) list.push_back(t);
  return list;
}

void ShardedParameters::add_layouts(const std::string& path, const torch::nn::Module& module) {
  for (auto& [name, layout] : layouts_of(module)) {
    const std::string full = path.empty() ? name : path + "." + name;
    if (first_divided_.empty() && !layout.is_whole()) first_divided_ = full;
    layouts_.insert_or_assign(full, layout);
  }
}

int64_t ShardedParameters::begin_of(const std::string& shard) const {
  const auto it = places_.find(shard);
  return it == places_.end() ? 0 : it->second.begin;
}

std::shared_ptr<const NormParts> ShardedParameters::norm_parts() {
  complete();
  check<UsageError>(
      first_divided_.empty(),
      "norm_parts: this rank holds a part of '{}', whose norm its shards do not give: "
      "use an optimizer without norms of parameters",
      first_divided_);
  return parts_;
}

double ShardedParameters::clip_grad_norm_(double max_norm, double norm_type,
                                          bool error_if_nonfinite) {
  check<UsageError>(
      first_divided_.empty(),
      "clip_grad_norm_: this rank holds a part of '{}', and its shards do not give "
      "the norm of the whole model: use clip_grad_norm(sharded, tp.group(), max_norm) "
      "(shard/divided_shards.h)",
      first_divided_);
  const NamedTensors& tensors = shards();
  return trireme::clip_grad_norm_(tensors, *parts_, max_norm, norm_type, error_if_nonfinite);
}

void ShardedParameters::clip_grad_value_(double clip_value) {
  trireme::clip_grad_value_(shards(), clip_value);
}

void ShardedParameters::zero_grad() {
  for (auto& [name, t] : shards_) t.mutable_grad() = at::Tensor();
}

void ShardedParameters::state(StateVisitor& of_whole) {
  complete();
  LayoutVisitor visitor(of_whole, layouts_);
  const auto visit = [&](const ParameterShard& s) {
    const Place& place = places_.at(s.name);
    visitor.tensor(Slice::range("model." + s.name, place.shape, place.begin, s.tensor.numel()),
                   s.tensor.detach());
  };
  for (FlatParameters* flat : all_flats_) {
    flat->hold();
    detail::with_finally(
        [&] { std::for_each(flat->shards().begin(), flat->shards().end(), visit); },
        [&] { flat->release(FlatParameters::Changed::maybe); });
  }
}

void ShardedParameters::sharded_state(StateVisitor& of_whole, const StateWalk& walk) const {
  LayoutVisitor visitor(of_whole, layouts_);
  const bool owns_nothing = shards_.size() == 1 && !places_.contains(shards_[0].first);
  ShardVisitor sliced(
      visitor,
      [this](const std::string& name, int64_t length) -> std::optional<Slice> {
        // "optim.exp_avg.blocks.0.weight": the longest ending that is a parameter's name.
        for (size_t dot = name.find('.'); dot != std::string::npos; dot = name.find('.', dot + 1)) {
          const auto it = places_.find(name.substr(dot + 1));
          if (it == places_.end()) continue;
          return Slice::range(name, it->second.shape, it->second.begin, length);
        }
        return std::nullopt;
      },
      owns_nothing ? shards_[0].first : "");
  walk(sliced);
}

StateWalk state_of(ShardedParameters& sharded) {
  return [&sharded](StateVisitor& v) {
    sharded.state(v);
    if (v.loading()) sharded.publish();
  };
}

StateWalk state_of(torch::optim::Optimizer& optimizer, ShardedParameters& sharded) {
  return [&](StateVisitor& v) {
    const NamedTensors& shards = sharded.shards();
    sharded.sharded_state(
        v, [&](StateVisitor& parts) { visit_torch_optimizer(optimizer, shards, parts); });
  };
}

}  // namespace trireme
