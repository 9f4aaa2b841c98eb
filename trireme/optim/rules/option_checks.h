// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>

#include "trireme/base/check.h"
#include "trireme/optim/optimizer.h"

// Inside optim: what every optimizer says about a number that cannot be, and the checks of options
// that more than one optimizer takes.
namespace trireme {

inline void check_not_negative(const char* optimizer, const char* option, double value) {
  check<UsageError>(value >= 0 && std::isfinite(value), "{}: {} is {}: it must be 0 or more",
                    optimizer, option, value);
}

/// A decay rate: below 1, or nothing would ever be forgotten.
inline void check_rate(const char* optimizer, const char* option, double value) {
  check<UsageError>(value >= 0 && value < 1, "{}: {} is {}: it must lie in [0, 1)", optimizer,
                    option, value);
}

inline void check_options(const SgdOptions& options) {
  check<UsageError>(options.momentum >= 0 && options.weight_decay >= 0,
                    "SGD: momentum ({}) and weight_decay ({}) must not be negative",
                    options.momentum, options.weight_decay);
  check<UsageError>(std::isfinite(options.dampening), "SGD: dampening is {}: it must be a number",
                    options.dampening);
  check<UsageError>(!options.nesterov || (options.momentum > 0 && options.dampening == 0),
                    "SGD: nesterov needs a momentum above 0 and no dampening, as torch's");
}

inline void check_options(const AdagradOptions& options) {
  check_not_negative("Adagrad", "lr_decay", options.lr_decay);
  check_not_negative("Adagrad", "eps", options.eps);
  check_not_negative("Adagrad", "weight_decay", options.weight_decay);
  check_not_negative("Adagrad", "initial_accumulator_value", options.initial_accumulator_value);
}

inline void check_options(const AdamWOptions& options) {
  check<UsageError>(
      options.beta1 >= 0 && options.beta1 < 1 && options.beta2 >= 0 && options.beta2 < 1,
      "AdamW: betas are ({}, {}): both must be in [0, 1)", options.beta1, options.beta2);
  check<UsageError>(options.freeze_step >= 0, "AdamW: freeze_step is {}: choose 0 (never) or more",
                    options.freeze_step);
  check<UsageError>(options.eps >= 0 && options.weight_decay >= 0,
                    "AdamW: eps ({}) and weight_decay ({}) must not be negative", options.eps,
                    options.weight_decay);
}

}  // namespace trireme
