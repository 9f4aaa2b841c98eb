// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include "trireme/optim/rules/adafactor_scalars.h"
#include "trireme/optim/rules/rule_kernels.h"

// The passes of rule_kernels.h as LibTorch operators, for parameters on any device: the same
// numbers, rounded in the same places, so that where a device's operators round as IEEE says the
// bits are the CPU's. Adafactor's alone are near them, because its means are added in another
// order. None waits for the device.
namespace trireme {

void adamw_pass(at::Tensor p, const at::Tensor& g, at::Tensor m, at::Tensor v,
                const AdamWScalars& s);
void amsgrad_pass(at::Tensor p, const at::Tensor& g, at::Tensor m, at::Tensor v, at::Tensor most,
                  const AdamWScalars& s);
void sgd_pass(at::Tensor p, const at::Tensor& g, at::Tensor m, const SgdScalars& s);
void lion_pass(at::Tensor p, const at::Tensor& g, at::Tensor m, const LionScalars& s);
void rmsprop_pass(at::Tensor p, const at::Tensor& g, at::Tensor v, at::Tensor mean,
                  at::Tensor buffer, const RmspropScalars& s);
void adagrad_pass(at::Tensor p, const at::Tensor& g, at::Tensor sum, const AdagradScalars& s);
void lars_pass(at::Tensor p, const at::Tensor& g, at::Tensor buffer, const LarsScalars& s);
void lamb_moments(const at::Tensor& g, at::Tensor m, at::Tensor v, const LambScalars& s);
at::Tensor lamb_direction(const at::Tensor& p, const at::Tensor& m, const at::Tensor& v,
                          const LambScalars& s);
void lamb_update(at::Tensor p, const at::Tensor& m, const at::Tensor& v, const LambScalars& s,
                 double step);
/// The whole step of one parameter, seen as a matrix; `row` is undefined where it has one row.
void adafactor_pass(at::Tensor p, const at::Tensor& g, at::Tensor row, at::Tensor column,
                    const AdafactorScalars& s);

}  // namespace trireme
