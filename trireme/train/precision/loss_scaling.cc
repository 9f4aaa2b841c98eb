// SPDX-License-Identifier: Apache-2.0
#include "trireme/train/precision/loss_scaling.h"

#include <cmath>

#include "trireme/base/check.h"

namespace trireme {
namespace {

class None final : public LossScaling {
 public:
  explicit None(double nominal) : nominal_(nominal) {}
  at::Tensor scale(const at::Tensor& loss) const override {
    return nominal_ == 1 ? loss : loss.div(nominal_);
  }
  double inverse() const override { return nominal_; }
  bool skips() const override { return false; }

 private:
  double nominal_;
};

class Scaled final : public LossScaling {
 public:
  Scaled(const LossScaleOptions& options, Group group, double nominal)
      : scaler_(options, std::move(group)), nominal_(nominal) {}
  at::Tensor scale(const at::Tensor& loss) const override {
    return scaler_.scale(nominal_ == 1 ? loss : loss.div(nominal_));
  }
  double inverse() const override { return scaler_.inverse() * nominal_; }
  double loss_scale() const override { return scaler_.scale(); }
  bool skips() const override { return true; }
  void update(const GradVerdict& verdict) override {
    scaler_.update(verdict);
    skipped_ += !verdict.finite;
  }
  int64_t skipped() const override { return skipped_; }
  void state(StateVisitor& visitor) override {
    scaler_.state(visitor);
    int64_t skipped = skipped_;
    visitor.value("scaler.skipped_steps", skipped);
    check<Corrupt>(
        skipped >= 0 && skipped <= scaler_.steps(),
        "loss scaler: the saved state counts {} skipped steps of {}: use another checkpoint",
        skipped, scaler_.steps());
    skipped_ = skipped;
  }

 private:
  GradScaler scaler_;
  double nominal_;
  int64_t skipped_ = 0;
};

}  // namespace

LossScaling::~LossScaling() = default;

std::unique_ptr<LossScaling> no_loss_scaling(double nominal) {
  return std::make_unique<None>(nominal);
}

std::unique_ptr<LossScaling> grad_scaler_scaling(const LossScaleOptions& options, Group group,
                                                 double nominal) {
  return std::make_unique<Scaled>(options, std::move(group), nominal);
}

double nominal_weight(int64_t n) {
  return n < 1 ? 1 : std::exp2(std::round(std::log2(static_cast<double>(n))));
}

}  // namespace trireme
