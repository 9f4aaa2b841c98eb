// SPDX-License-Identifier: Apache-2.0
#include "trireme/train/exchange/gradient_sync_strategy.h"

#include <numeric>

#include "trireme/base/check.h"
#include "trireme/base/trace.h"
#include "trireme/config/sections/averaging.h"
#include "trireme/config/sections/comm.h"
#include "trireme/config/sections/compression.h"
#include "trireme/grad/compression/compression.h"
#include "trireme/grad/hooks/adasum_hook.h"
#include "trireme/grad/hooks/master_hook.h"
#include "trireme/grad/module_sync.h"
#include "trireme/train/exchange/averaged_exchange.h"

namespace trireme {

GradientSyncStrategy::~GradientSyncStrategy() = default;

double GradientSyncStrategy::weight(const Gradients::Reports& reports) const {
  return std::accumulate(reports.weights.begin(), reports.weights.end(), 0.0);
}

void GradientSyncStrategy::state(StateVisitor& visitor, const StateWalk& of_optimizer) {
  of_optimizer(visitor);
}

GradientSyncStrategy::AveragedWeightsGuard::AveragedWeightsGuard(GradientSyncStrategy& exchange,
                                                                 bool loading)
    : exchange_(exchange) {
  exchange_.begin_as_one(loading);
}
GradientSyncStrategy::AveragedWeightsGuard::~AveragedWeightsGuard() { exchange_.end_as_one(); }

namespace {

class Hooked final : public GradientSyncStrategy {
 public:
  Hooked(CommHook hook, std::string text, std::string layout = "replicated")
      : GradientSyncStrategy(std::move(text), std::move(layout)), hook_(std::move(hook)) {}
  CommHook hook() override { return hook_; }

 private:
  CommHook hook_;
};

// With signs alone, clipping first loses more: see docs/compression.md.
bool clips_before(const CompressionSection& c) {
  return c.clip == "own" || (c.clip == "auto" && c.codec.type != "sign");
}

/// Compressed gradients; each rank keeps what it has not sent.
class Compressed final : public GradientSyncStrategy {
 public:
  Compressed(std::shared_ptr<CompressionHook> hook, const CompressionSection& c, int ranks)
      : GradientSyncStrategy(fmt::format("gradients travel as {}",
                                         c.codec.type == "auto" ? "auto" : hook->describe()),
                             fmt::format("what {} ranks have not sent", ranks)),
        hook_(std::move(hook)),
        described_(hook_->describe()),
        own_(ranks > 1 && clips_before(c)),
        start_step_(c.codec.start_step) {}
  CommHook hook() override { return hook_->hook(); }
  void state(StateVisitor& visitor, const StateWalk& of_optimizer) override {
    of_optimizer(visitor);
    hook_->state(visitor);
  }
  bool may_clip_own() const override { return own_; }
  // Nothing is kept of uncompressed gradients.
  bool clips_own() const override { return own_ && hook_->rounds() >= start_step_; }
  void rescaled(double factor) override {
    if (ErrorFeedback* kept = hook_->errors()) kept->scale(factor);
  }
  bool sees_buckets() const override { return true; }
  std::string news() override {
    std::string now = hook_->describe();
    return now == described_ ? "" : "gradients travel as " + (described_ = std::move(now));
  }
  int64_t wire_bytes() const override { return hook_->wire_bytes(); }

 private:
  std::shared_ptr<CompressionHook> hook_;
  std::string described_;
  const bool own_;
  const int64_t start_step_;
};

/// "Broadcast updated parameters": rank 0 has all gradients and steps, the others get its weights.
class FromMaster final : public GradientSyncStrategy {
 public:
  explicit FromMaster(Group group)
      : GradientSyncStrategy("rank 0 collects gradients, steps and broadcasts weights"),
        group_(std::move(group)) {}
  CommHook hook() override { return reduce_to_master_hook(0); }
  void attach(const NamedTensors& parameters, const NamedTensors&) override {
    weights_ = parameters;
  }
  bool steps_on_this_rank() const override { return group_.rank() == 0; }
  // The others' optimizers never step.
  void state(StateVisitor& visitor, const StateWalk& of_optimizer) override {
    if (group_.rank() == 0) of_optimizer(visitor);
  }
  void after_optimizer_step() override {
    Span span("exposed_comm", "broadcast weights");
    broadcast_tensors(group_, weights_);
  }

 private:
  Group group_;
  NamedTensors weights_;
};

}  // namespace

std::unique_ptr<GradientSyncStrategy> make_exchange(const Config& c, Group group,
                                                    const NamedTensors& parameters, CommHook plain,
                                                    std::string layout) {
  if (c.section<AveragingSection>().type != "none") return averaged_exchange(c, std::move(group));
  const auto compression = c.section<CompressionSection>();
  if (compression.codec.type != "none") {
    auto hook = make_compression(compression.codec, parameters, group);
    return std::make_unique<Compressed>(std::move(hook), compression, group.size());
  }
  const std::string strategy = c.section<CommSection>().strategy;
  if (strategy == "parameter_server")
    return std::make_unique<Hooked>(parameter_server_hook(0),
                                    "rank 0 collects gradients and sends the sum back");
  if (strategy == "broadcast_parameters") return std::make_unique<FromMaster>(std::move(group));
  if (strategy == "adasum")
    return std::make_unique<Hooked>(adasum_hook()->hook(), "gradients added by Adasum");
  return std::make_unique<Hooked>(std::move(plain), "", std::move(layout));
}

}  // namespace trireme
