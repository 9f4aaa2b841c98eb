// SPDX-License-Identifier: Apache-2.0
#include <map>

#include "trireme/base/check.h"
#include "trireme/grad/ddp_tensors.h"
#include "trireme/grad/hooks/hook_adapter.h"
#include "trireme/shard/fully_sharded.h"
#include "trireme/shard/gradient_scatter.h"
#include "trireme/shard/replicated_parameters.h"
#include "trireme/shard/unused_after.h"
#include "trireme/train/gradients/gradients.h"

// ZeRO in a training step: stages 1 and 2 around parameters that stay whole, stage 3 around units.
namespace trireme {
namespace {

// In stage 1 a step is one round. Otherwise each backward is one: its gradients are sent before
// the next begins.
class RoundsOfAStep {
 public:
  RoundsOfAStep(GradientScatter& scatter, bool one, int stages)
      : scatter_(scatter), one_(one), stages_(stages) {}

  void open(int micro_batches) {
    check<UsageError>(!stepping_ || !began_,
                      "the last step was interrupted by an exception while its gradients were "
                      "being reduced, so ranks may be out of sync: build the run again");
    stepping_ = true;
    began_ = one_;
    scatter_.expect(one_ ? micro_batches : 1);
    scatter_.begin_step(one_ ? 1 : micro_batches, one_ ? 1 : stages_);
    if (one_) scatter_.open();
  }
  /// `between` runs when a round has ended.
  template <class Between>
  void begin_backward(int stage, int leaf, const Between& between) {
    if (one_) return;
    finish_backward(between);
    scatter_.open(stage, leaf);
    began_ = true;
  }
  template <class Between>
  void finish_backward(const Between& between) {
    if (one_ || !scatter_.is_open()) return;
    scatter_.close();
    between();
  }
  template <class Between>
  void close(const Between& between) {
    check<UsageError>(stepping_ && began_, "close() without open() and a backward");
    if (scatter_.is_open()) {
      scatter_.close();
      between();
    }
    stepping_ = false;
  }

 private:
  GradientScatter& scatter_;
  const bool one_;
  const int stages_;
  bool stepping_ = false, began_ = false;  // between open() and close(); a round of it
};

Gradients::NotFinite name_of(const GradientScatter& scatter) {
  const GradientScatter::Found found = scatter.not_finite();
  if (found.rank < 0) return {};
  return {found.rank, scatter.name(found.parameter)};
}

int levels(int micro_batches) { return 1 + __builtin_ctz(static_cast<unsigned>(micro_batches)); }

bool one_round(const ShardedGradientOptions& o) {
  return o.stage == ZeroStage::optimizer && !o.reproducible;
}

class ShardedGradients final : public Gradients {
 public:
  ShardedGradients(NamedTensors parameters, const NamedTensors& buffers, const ShardGroups& groups,
                   const ShardedGradientOptions& o)
      : Gradients(std::move(parameters)),
        replicated_(ddp_tensors(parameters_, buffers), groups,
                    {o.stage, o.bucket_bytes, ReduceOp::sum, o.reproducible, o.wire,
                     o.share_weights, one_round(o) ? ModelStages{} : o.stages}),
        rounds_(scatter(), one_round(o), o.stages.count),
        hooks_(scatter(), HookAdapter::Rounds::driven),
        unused_(unused_after(scatter(), groups.world, o.find_unused)),
        tree_(o.reproducible) {
    std::map<at::TensorImpl*, size_t> of;
    for (size_t i = 0; i < scatter().size(); ++i)
      of[scatter().parameter(i).unsafeGetTensorImpl()] = i;
    for (const auto& [name, p] : parameters_) index_.push_back(of.at(p.unsafeGetTensorImpl()));
    ride_on(scatter().record());
  }

  void open(int micro_batches) override {
    for (auto& [name, p] : parameters_) p.mutable_grad() = at::Tensor();
    replicated_.look_or_end();
    replicated_.zero_grad();
    rounds_.open(micro_batches);
  }
  void begin_backward(int stage, int leaf) override {
    rounds_.begin_backward(stage, leaf, [] {});
  }
  void finish_backward() override {
    rounds_.finish_backward([] {});
  }
  void ready(size_t i) override {
    if (scatter().is_open()) scatter().ready(index_[i]);
  }
  void close() override {
    rounds_.close([] {});
    replicated_.follow();
    unused_();
  }
  NotFinite not_finite() const override { return name_of(scatter()); }
  // Stage 1 keeps whole gradients until the step ends.
  int64_t bytes() override {
    const GradientScatter::Stats stats = scatter().stats();
    return stats.shard_bytes > 0 ? stats.shard_bytes : stats.gather_buffer_bytes;
  }
  ShardedParameters* sharded() override { return &replicated_; }
  int tree_buffers(int micro_batches) const override { return tree_ ? levels(micro_batches) : 0; }

 private:
  GradientScatter& scatter() { return replicated_.gradients(); }
  const GradientScatter& scatter() const { return replicated_.gradients(); }

  ReplicatedParameters replicated_;
  RoundsOfAStep rounds_;
  HookAdapter hooks_;
  std::function<void()> unused_;
  std::vector<size_t> index_;  // of our parameters, in the scatter
  bool tree_;
};

class FullyShardedGradients final : public Gradients {
 public:
  FullyShardedGradients(NamedTensors parameters, std::unique_ptr<FullySharded> sharded, int stages)
      : Gradients(std::move(parameters)),
        sharded_(std::move(sharded)),
        rounds_(sharded_->gradients(), false, stages) {
    ride_on(sharded_->gradients().record());
  }

  void open(int micro_batches) override {
    sharded_->zero_grad();
    rounds_.open(micro_batches);
  }
  void begin_backward(int stage, int leaf) override {
    rounds_.begin_backward(stage, leaf, [&] { sharded_->end_round(); });
  }
  void finish_backward() override {
    rounds_.finish_backward([&] { sharded_->end_round(); });
  }
  void ready(size_t) override {
    fail<UsageError>("ZeRO stage 3 takes gradients only from autograd");
  }
  void close() override {
    rounds_.close([&] { sharded_->end_round(); });
  }
  NotFinite not_finite() const override { return name_of(sharded_->gradients()); }
  ShardedParameters* sharded() override { return sharded_.get(); }
  int tree_buffers(int micro_batches) const override { return levels(micro_batches); }

 private:
  std::unique_ptr<FullySharded> sharded_;
  RoundsOfAStep rounds_;
};

}  // namespace

std::unique_ptr<Gradients> sharded_gradients(NamedTensors parameters, const NamedTensors& buffers,
                                             ShardGroups groups,
                                             const ShardedGradientOptions& options) {
  return std::make_unique<ShardedGradients>(std::move(parameters), buffers, groups, options);
}

std::unique_ptr<Gradients> fully_sharded_gradients(NamedTensors parameters,
                                                   std::unique_ptr<FullySharded> sharded,
                                                   int stages) {
  return std::make_unique<FullyShardedGradients>(std::move(parameters), std::move(sharded), stages);
}

}  // namespace trireme
