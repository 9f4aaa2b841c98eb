// SPDX-License-Identifier: Apache-2.0
#include "trireme/train/exchange/averaged_exchange.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>

#include "trireme/base/check.h"
#include "trireme/config/sections/averaging.h"
#include "trireme/grad/compression/compression.h"
#include "trireme/grad/hooks/local_sgd_hook.h"
#include "trireme/optim/averaging/model_averaging.h"

namespace trireme {
namespace {

/// Presents every tensor as one that each rank has for itself.
class OwnParts final : public ForwardingVisitor {
 public:
  OwnParts(StateVisitor& inner, const Group& group)
      : ForwardingVisitor(inner), rank_(group.rank()), ranks_(group.size()) {}
  using StateVisitor::tensor;
  void tensor(const Slice& slice, at::Tensor local) override {
    inner_.rank_tensor(slice.name, rank_, ranks_, RankStateRule::average, local.view({-1}));
  }

 private:
  const int rank_, ranks_;
};

std::string describe(const AveragingSection& a) {
  std::string text = a.type == "diloco"      ? "DiLoCo"
                     : a.type == "local_sgd" ? (a.start_step > 0 ? "post-local SGD" : "local SGD")
                                             : "hierarchical averaging";
  if (a.type != "hierarchical") text += fmt::format(", period {}", a.period);
  if (a.start_step > 0) text += fmt::format(", from step {} on", a.start_step + 1);
  return text;
}

std::vector<AveragingLevel> levels_of(const AveragingSection& a) {
  std::vector<AveragingLevel> levels;
  for (size_t i = 0; i < a.group_sizes.size(); ++i)
    levels.push_back({static_cast<int>(a.group_sizes[i]), a.periods[i]});
  return levels;
}

class Averaged final : public GradientSyncStrategy {
 public:
  Averaged(const Config& c, Group group)
      : GradientSyncStrategy(describe(c.section<AveragingSection>()),
                             fmt::format("{} ranks that step separately", group.size())),
        averaging_(c.section<AveragingSection>()),
        group_(std::move(group)) {
    const int64_t near = averaging_.near;
    check<UsageError>(group_.size() % near == 0,
                      "{}: averaging.near is {}, which does not divide {} ranks",
                      c.origin("averaging.near"), near, group_.size());
    near_ = static_cast<int>(near);
    if (near_ == group_.size())
      near_group_ = group_;
    else if (near_ > 1)
      near_group_ = group_.split(group_.rank() / near_);
    if (averaging_.type == "hierarchical") {
      const std::string fault = fault_of(levels_of(averaging_), group_.size());
      check<UsageError>(fault.empty(), "{}: averaging.group_sizes: {}",
                        c.origin("averaging.group_sizes"), fault);
    }
  }

  CommHook hook() override {
    return local_sgd_hook([this] { return averager_->steps_locally(); }, near_group_);
  }

  void attach(const NamedTensors& parameters, const NamedTensors& buffers) override {
    tensors_ = parameters;
    for (const auto& [name, b] : buffers)
      if (b.is_floating_point()) tensors_.emplace_back(name, b);
    const std::string type = averaging_.type;
    const int64_t start = averaging_.start_step;
    if (type == "hierarchical")
      averager_ = average_hierarchically(parameters, group_, levels_of(averaging_), start, buffers);
    else if (type == "diloco")
      averager_ = diloco(parameters, group_, diloco_options(parameters), buffers);
    else
      averager_ = average_periodically(parameters, group_, {averaging_.period, start}, buffers);
  }

  double weight(const Gradients::Reports& reports) const override {
    if (!local_step()) return GradientSyncStrategy::weight(reports);
    double sum = 0;
    const int first = group_.rank() / near_ * near_;
    for (int r = first; r < first + near_; ++r) sum += reports.weights[static_cast<size_t>(r)];
    return sum;
  }

  void after_optimizer_step() override { averager_->step(); }

  void state(StateVisitor& visitor, const StateWalk& of_optimizer) override {
    OwnParts own(visitor, group_);
    for (size_t i = 0; i < tensors_.size(); ++i)
      own.tensor("own." + tensors_[i].first, own_.empty() ? tensors_[i].second.detach() : own_[i]);
    of_optimizer(own);
    averager_->state(visitor);
    if (codec_) codec_->state(visitor);
  }

 private:
  // The gradients of a step are reduced before its after_optimizer_step().
  bool local_step() const { return averager_->steps_locally(); }

  DiLoCoOptions diloco_options(const NamedTensors& parameters) {
    DiLoCoOptions o{averaging_.period, averaging_.start_step, averaging_.outer_lr,
                    averaging_.outer_momentum, averaging_.nesterov};
    const std::string type = averaging_.compression;
    if (type == "none") return o;
    CompressionOptions codec;
    codec.type = type;
    codec.start_step = 0;
    int64_t numel = 0;
    for (const auto& [name, p] : parameters) numel += p.numel();
    codec_ = make_compression(
        codec, {{"pseudo_gradient", at::empty({numel}, parameters[0].second.options())}}, group_);
    o.mean = [this, hook = codec_->hook()](const at::Tensor& flat) {
      const std::vector<GradBucketPart> parts{{0, "pseudo_gradient", 0, flat}};
      GradBucket bucket{0, true, flat, &parts};
      hook(group_, bucket, ReduceOp::avg).wait();
    };
    return o;
  }

  void begin_as_one(bool loading) override {
    at::NoGradGuard no_grad;
    for (const auto& [name, t] : tensors_) own_.push_back(t.detach().clone());
    if (!loading && !averager_->in_sync()) average_tensors(group_, tensors_);
  }
  void end_as_one() override {
    at::NoGradGuard no_grad;
    for (size_t i = 0; i < tensors_.size(); ++i) tensors_[i].second.detach().copy_(own_[i]);
    own_.clear();
  }

  const AveragingSection averaging_;
  Group group_, near_group_;
  int near_ = 1;
  NamedTensors tensors_;         // weights and floating buffers
  std::vector<at::Tensor> own_;  // this rank's, while tensors_ are the mean
  std::unique_ptr<ModelAverager> averager_;
  std::shared_ptr<StatefulHook> codec_;
};

}  // namespace

std::unique_ptr<GradientSyncStrategy> averaged_exchange(const Config& config, Group group) {
  return std::make_unique<Averaged>(config, std::move(group));
}

}  // namespace trireme
