// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "trireme/base/export.h"
#include "trireme/optim/norm_parts.h"
#include "trireme/tensor/parameter_table.h"
#include "trireme/tensor/state.h"

// Optimizers that keep each kind of state in one flat buffer, addressed by the ParameterTable, and
// step in one fused pass over each parameter (LARS and LAMB: one pass that measures and one that
// updates; Adafactor: two that measure). Results match torch::optim's to 1e-6 where it has that
// optimizer. Each element is updated independently, so any split of the flat buffer gives the same
// bits (LARS and LAMB need NormParts for that; Adafactor's rows and columns cannot be split).
//
// Parameters: all float32 or all float64, contiguous, on one device (half-precision ones: see
// optim/master_weights.h). A parameter that is listed under two names is stepped once; patterns
// match either name. The optimizer keeps handles to the parameters and owns its state, whose size
// as a multiple of the parameters' is: AdamW 2x (with amsgrad 3x), LAMB 2x; AdaMod 3x; Lion and
// Adagrad 1x; SGD and LARS 1x with momentum, else none; RMSprop 1x, plus 1x each for momentum and
// `centered`; Adafactor the rows + columns of each matrix. Gradients are read from p.grad(). One
// thread at a time. Every rank steps by itself; the only communication is
// NormParts::add_over_ranks.
namespace trireme {

/// Options for the parameters whose name matches `pattern` (a glob with * and ?); the last match
/// wins. Unset options are the optimizer's own. {"*.bias", 0.0} means "no decay for biases".
struct OptionGroup {
  std::string pattern;
  std::optional<double> weight_decay = {};
  double lr_multiplier = 1;
};

/// torch::optim::SGD.
struct SgdOptions {
  double momentum = 0;
  double weight_decay = 0;
  bool nesterov = false;  // requires momentum and no dampening
  double dampening = 0;   // without effect if momentum is 0, as in torch
};

/// torch::optim::AdamW; decoupled = false gives torch::optim::Adam. With v frozen, a step is linear
/// in the gradients, so gradients that compression delivers late count as if they had arrived in
/// time: Tang et al., "1-bit Adam", ICML 2021.
struct AdamWOptions {
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0.01;
  bool decoupled = true;
  bool bias_correction = true;
  bool amsgrad = false;     // divides by the largest v so far (state max_exp_avg_sq)
  int64_t freeze_step = 0;  // steps of a parameter after which v is frozen; 0: never
};

/// Ding et al. 2019 (arXiv 1910.12249): Adam whose rates are bounded by their own mean. a = lr
/// sqrt(1 - beta2^t) / ((1 - beta1^t) (sqrt(v) + eps)); s = beta3 s + (1 - beta3) a; p = p (1 - lr
/// weight_decay) - min(a, s) m. s begins at 0, which warms the rates up over some 1 / (1 - beta3)
/// steps.
struct AdaModOptions {
  double beta1 = 0.9;
  double beta2 = 0.999;
  double beta3 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0;
};

/// Chen et al. 2023: p -= lr (sign(beta1 m + (1-beta1) g) + weight_decay p), then m = beta2 m +
/// (1-beta2) g.
struct LionOptions {
  double beta1 = 0.9;
  double beta2 = 0.99;
  double weight_decay = 0;
};

/// torch::optim::RMSprop. Weight decay is added to the gradient.
struct RmspropOptions {
  double alpha = 0.99;
  double eps = 1e-8;
  double weight_decay = 0;
  double momentum = 0;
  bool centered = false;
};

/// torch::optim::Adagrad. Weight decay is added to the gradient.
struct AdagradOptions {
  double lr_decay = 0;
  double eps = 1e-10;
  double weight_decay = 0;
  double initial_accumulator_value = 0;
};

/// You, Gitman, Ginsburg 2017: each parameter's rate is lr times trust_coefficient ‖w‖ / (‖g‖ +
/// weight_decay ‖w‖ + eps); m = momentum m + rate (g + weight_decay w); w -= m.
struct LarsOptions {
  double momentum = 0.9;
  double weight_decay = 0;
  double trust_coefficient = 0.001;
  double eps = 1e-8;
  /// Patterns of parameters that use lr itself, usually biases and norms.
  std::vector<std::string> no_adapt = {"*.bias", "*norm*", "*ln*"};
};

/// You et al. 2019: u = Adam's step (moments corrected) + weight_decay w; w -= lr clamp(‖w‖/‖u‖) u.
struct LambOptions {
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0;
  double min_coeff = 0.01;  // bounds of ‖w‖/‖u‖, by DeepSpeed's names
  double max_coeff = 10;
  bool bias_correction = true;
  std::vector<std::string> no_adapt = {};  // patterns of parameters whose ratio is 1
};

/// Shazeer, Stern 2018: keeps only row and column means of squares for each matrix (a tensor of
/// more dimensions counts as the matrix [size(0), the rest]; a vector keeps all). t is the step, u
/// = g / sqrt(second moment): p = p (1 - lr weight_decay) - lr max(eps2, rms(p)) u / max(1, rms(u)
/// / d). The paper's relative step size corresponds to the schedule inverse_sqrt.
struct AdafactorOptions {
  double beta2_decay = -0.8;  // beta2 = 1 - t^beta2_decay
  double eps1 = 1e-30;        // added to squares
  double eps2 = 1e-3;
  double d = 1;  // clipping of u
  double weight_decay = 0;
  bool scale_parameter = true;  // false: without max(eps2, rms(p))
};

class TRIREME_API Optimizer {
 public:
  virtual ~Optimizer();
  Optimizer(const Optimizer&) = delete;

  /// Performs one update in place. Each gradient is multiplied by `grad_scale` as it is read:
  /// 1/(global weight), the inverse loss scale and the clip coefficient in one factor. A parameter
  /// without a gradient is left unchanged, as in torch. A float32 parameter's gradient may be
  /// float16 or bfloat16: it is converted to float32, a few parameters at once. UsageError (nothing
  /// has changed) for a gradient that is sparse or has another dtype, size or device.
  virtual void step(double lr, double grad_scale = 1) = 0;
  /// "optim.<kind>.<parameter>" tensors and "optim.step"; optimizers whose formula uses a
  /// parameter's step count also have "optim.steps.<parameter>".
  virtual void state(StateVisitor& visitor) = 0;

  /// Zeroes gradients in place (they may be views of gradient buckets), or makes them undefined.
  virtual void zero_grad(bool set_to_none = false);
  const ParameterTable& table() const { return table_; }
  /// The number of steps taken.
  int64_t steps() const { return steps_; }

 protected:
  Optimizer() = default;  // for a decorator, which sets parameters_ and table_
  Optimizer(NamedTensors parameters, const std::vector<OptionGroup>& groups);
  struct Segment;
  class Segments;
  /// The parameters that have a gradient, checked. Call it before changing anything.
  Segments segments() const;
  static void zero_grad(const NamedTensors& parameters, bool set_to_none);
  at::Tensor zeros() const;  // as many elements as the flat buffer
  void visit(StateVisitor& visitor, const std::string& kind, const at::Tensor& flat);
  void visit_steps(StateVisitor& visitor, std::vector<int64_t>& taken);
  /// For each parameter, whether none of the patterns matches its name.
  std::vector<bool> not_matching(const std::vector<std::string>& patterns) const;
  double decay_of(size_t parameter, double default_decay) const;
  double multiplier_of(size_t parameter) const;

  NamedTensors parameters_;
  ParameterTable table_;
  std::vector<OptionGroup> groups_;  // [0]: the optimizer's own options
  int64_t steps_ = 0;
};

/// These throw UsageError for options out of range and for parameters that are not as described
/// above.
TRIREME_API std::unique_ptr<Optimizer> make_sgd(NamedTensors parameters,
                                                const SgdOptions& options = {},
                                                const std::vector<OptionGroup>& groups = {});
TRIREME_API std::unique_ptr<Optimizer> make_adamw(NamedTensors parameters,
                                                  const AdamWOptions& options = {},
                                                  const std::vector<OptionGroup>& groups = {});
TRIREME_API std::unique_ptr<Optimizer> make_adamod(NamedTensors parameters,
                                                   const AdaModOptions& options = {},
                                                   const std::vector<OptionGroup>& groups = {});
TRIREME_API std::unique_ptr<Optimizer> make_lion(NamedTensors parameters,
                                                 const LionOptions& options = {},
                                                 const std::vector<OptionGroup>& groups = {});
TRIREME_API std::unique_ptr<Optimizer> make_rmsprop(NamedTensors parameters,
                                                    const RmspropOptions& options = {},
                                                    const std::vector<OptionGroup>& groups = {});
TRIREME_API std::unique_ptr<Optimizer> make_adagrad(NamedTensors parameters,
                                                    const AdagradOptions& options = {},
                                                    const std::vector<OptionGroup>& groups = {});
/// `parts`: given if the tensors are parts of larger parameters; null: each is whole. All ranks
/// that hold parts step equally often.
TRIREME_API std::unique_ptr<Optimizer> make_lars(NamedTensors parameters,
                                                 const LarsOptions& options = {},
                                                 const std::vector<OptionGroup>& groups = {},
                                                 std::shared_ptr<const NormParts> parts = {});
TRIREME_API std::unique_ptr<Optimizer> make_lamb(NamedTensors parameters,
                                                 const LambOptions& options = {},
                                                 const std::vector<OptionGroup>& groups = {},
                                                 std::shared_ptr<const NormParts> parts = {});
TRIREME_API std::unique_ptr<Optimizer> make_adafactor(NamedTensors parameters,
                                                      const AdafactorOptions& options = {},
                                                      const std::vector<OptionGroup>& groups = {});

}  // namespace trireme
