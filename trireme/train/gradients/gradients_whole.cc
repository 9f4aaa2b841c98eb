// SPDX-License-Identifier: Apache-2.0
#include <ATen/core/grad_mode.h>

#include <cmath>

#include "trireme/base/check.h"
#include "trireme/grad/ddp.h"
#include "trireme/grad/hooks/hook_adapter.h"
#include "trireme/grad/module_sync.h"
#include "trireme/grad/reducer.h"
#include "trireme/grad/rounds/leaf_round.h"
#include "trireme/grad/rounds/non_finite_detector.h"
#include "trireme/grad/rounds/replaced_parameters.h"
#include "trireme/grad/rounds/unused_parameters.h"
#include "trireme/grad/tuning/bucket_sizes.h"
#include "trireme/grad/tuning/bucket_tuning.h"
#include "trireme/optim/clip.h"
#include "trireme/train/gradients/gradients.h"

// Plain data parallelism: every rank has all gradients.
namespace trireme {
namespace {

Group& with_same_model(Group& group, const NamedTensors& parameters, const NamedTensors& buffers) {
  synchronise_module(group, {{parameters, "parameter"}, {buffers, "buffer"}});
  return group;
}

class WholeGradients final : public Gradients {
 public:
  WholeGradients(NamedTensors parameters, const NamedTensors& buffers, Group group,
                 GradientOptions o)
      : Gradients(std::move(parameters)),
        clips_own_(o.clips_own),
        reducer_(parameters_, with_same_model(group, parameters_, buffers),
                 {bucket_sizes_for(group, o.bucket_bytes, 0), ReduceOp::sum,
                  watch_.around(std::move(o.hook))}),
        tuning_(std::move(o.tuning)),
        leaves_(o.reproducible ? std::make_unique<LeafRound>(reducer_) : nullptr),
        hooks_(round(), HookAdapter::Rounds::driven),
        replaced_("the module", parameters_, {}, reducer_.group(), reducer_.record()),
        unused_(o.find_unused ? name_unused(group.rank()) : refuse_unused()) {
    check<UsageError>(
        !(clips_own_ && leaves_),
        "gradients of leaves are added along a tree: no rank has one of its own to clip");
    ride_on(reducer_.record());
    watch_.attach(reducer_.record());
    if (tuning_) tuning_->attach(reducer_.record());
  }

  void open(int micro_batches) override {
    // Set to none instead of zero, so that the first contribution is taken over without adding it
    // to zeros.
    for (auto& [name, p] : parameters_) p.mutable_grad() = at::Tensor();
    if (!replaced_.look()) {
      const std::string why =
          fmt::format("rank {}: {}", reducer_.group().rank(), replaced_.refusal());
      reducer_.group().abort(why);
      throw UsageError(why);
    }
    if (leaves_)
      leaves_->set_leaves(micro_batches);
    else
      reducer_.expect(clips_own_ ? kAsManyAsCome : micro_batches);
    round().open();
  }

  bool can_reopen() const override { return reducer_.is_open() && !reducer_.any_launched(); }
  void reopen(int micro_batches) override {
    check<UsageError>(can_reopen(), "a step whose gradients have been sent cannot start again");
    hooks_.reset();
    open(micro_batches);
  }

  void begin_backward(int, int leaf) override {
    if (leaves_) leaves_->begin_leaf(leaf);
  }

  void ready(size_t i) override {
    if (reducer_.is_open()) reducer_.ready(i);
  }

  void clip_own(double max_norm, double inverse_scale) override {
    check<UsageError>(clips_own_,
                      "GradientOptions::clips_own is not set: gradients are sent during backward");
    if (own_weight() <= 0) return;  // without samples the gradients are zeros
    const GradNorm own =
        grad_norm(parameters_, max_norm * std::sqrt(static_cast<double>(reducer_.group().size())),
                  inverse_scale / static_cast<double>(own_weight()));
    if (own.coefficient == 1) return;
    at::NoGradGuard no_grad;
    for (auto& [name, p] : parameters_)
      if (p.grad().defined()) p.mutable_grad().mul_(own.coefficient);
  }

  void close() override {
    round().close();
    replaced_.check();
    if (tuning_) tuning_->closed(reducer_);
    std::vector<ParameterUse> list;
    const int ranks = reducer_.group().size();
    for (size_t i = 0; i < parameters_.size(); ++i)
      if (const int used = reducer_.record().used_by(i);
          used < ranks && parameters_[i].second.requires_grad())  // and has not been frozen since
        list.push_back({parameters_[i].first, used});
    unused_(list, ranks);
  }

  NotFinite not_finite() const override {
    const NonFiniteDetector::Found found = watch_.found(reducer_.record());
    if (found.rank < 0) return {};
    return {found.rank, parameters_[found.parameter].first};
  }

  void state(StateVisitor& visitor) override { reducer_.state(visitor); }
  const Reducer& reducer() const override { return reducer_; }

  int tree_buffers(int micro_batches) const override {
    return leaves_ ? 1 + __builtin_ctz(static_cast<unsigned>(micro_batches)) : 0;
  }

 private:
  GradientRound& round() { return leaves_ ? static_cast<GradientRound&>(*leaves_) : reducer_; }

  const bool clips_own_;
  NonFiniteDetector watch_;
  Reducer reducer_;
  std::shared_ptr<BucketTuning> tuning_;
  std::unique_ptr<LeafRound> leaves_;
  HookAdapter hooks_;
  ReplacedParameters replaced_;
  UnusedPolicy unused_;
};

}  // namespace

std::unique_ptr<Gradients> whole_gradients(NamedTensors parameters, const NamedTensors& buffers,
                                           Group group, GradientOptions options) {
  return std::make_unique<WholeGradients>(std::move(parameters), buffers, std::move(group),
                                          std::move(options));
}

}  // namespace trireme
