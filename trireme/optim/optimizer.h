// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "trireme/base/export.h"
#include "trireme/tensor/parameter_table.h"
#include "trireme/tensor/state.h"

// Optimizers whose state lies in one flat buffer per kind, addressed by the ParameterTable, and
// whose step is one fused pass over each parameter. Results equal torch::optim's to 1e-6;
// parameters share nothing with each other, so any split of the line gives the same bits.
//
// Parameters: all float32 or all float64, contiguous, on one device. The optimizer keeps handles to
// them; the state is its own (AdamW 2x the parameters' bytes, SGD 1x with momentum, else none).
// Gradients are read from p.grad(). One thread at a time. No rank meets another here: every rank
// steps by itself.
namespace trireme {

/// Options for the parameters whose name matches `pattern` (glob: * and ?); the last match wins.
/// What is not set is as in the optimizer's own options. {"*.bias", 0.0} is "no decay for biases".
struct OptionGroup {
  std::string pattern;
  std::optional<double> weight_decay = {};
  double lr_multiplier = 1;
};

struct SgdOptions {
  double momentum = 0;  // dampening is 0
  double weight_decay = 0;
  bool nesterov = false;
};

/// torch::optim::AdamW; decoupled = false gives torch::optim::Adam.
struct AdamWOptions {
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0.01;
  bool decoupled = true;
  bool bias_correction = true;
  bool amsgrad = false;  // true is refused
};

class TRIREME_API Optimizer {
 public:
  virtual ~Optimizer();
  Optimizer(const Optimizer&) = delete;

  /// One update in place. `grad_scale` is multiplied into each gradient on the way: 1/(global
  /// weight), the loss scale and the clip coefficient in one factor. A parameter without a gradient
  /// is left as it is, as torch does. UsageError (nothing has changed) for a gradient that is
  /// sparse or of another dtype, size or device.
  virtual void step(double lr, double grad_scale = 1) = 0;
  /// "optim.<kind>.<parameter>" tensors and "optim.step"; AdamW also "optim.steps.<parameter>".
  virtual void state(StateVisitor& visitor) = 0;

  /// Fills gradients with zeros in place (they may be views of gradient buckets), or drops them.
  void zero_grad(bool set_to_none = false);
  const ParameterTable& table() const { return table_; }
  /// Steps taken.
  int64_t steps() const { return steps_; }

 protected:
  Optimizer(NamedTensors parameters, const std::vector<OptionGroup>& groups);
  struct Segment;
  /// Parameters that have a gradient, checked. Call before anything is changed.
  std::vector<Segment> segments() const;
  at::Tensor zeros() const;  // one element for each of the line
  void visit(StateVisitor& visitor, const std::string& kind, const at::Tensor& flat);
  double decay_of(size_t parameter, double otherwise) const;
  double multiplier_of(size_t parameter) const;

  NamedTensors parameters_;
  ParameterTable table_;
  std::vector<OptionGroup> groups_;  // [0]: the optimizer's own options
  int64_t steps_ = 0;
};

/// Throw UsageError for options out of range and for parameters that are not as said above.
TRIREME_API std::unique_ptr<Optimizer> make_sgd(NamedTensors parameters,
                                                const SgdOptions& options = {},
                                                const std::vector<OptionGroup>& groups = {});
TRIREME_API std::unique_ptr<Optimizer> make_adamw(NamedTensors parameters,
                                                  const AdamWOptions& options = {},
                                                  const std::vector<OptionGroup>& groups = {});

}  // namespace trireme
