// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/ArrayRef.h>

#include <vector>

#include "trireme/optim/rules/adafactor_scalars.h"
#include "trireme/optim/rules/rule_kernels.h"

// The passes of rule_kernels.h as LibTorch operators, for parameters on any device: the same
// numbers, rounded in the same places, so that where a device's operators round as IEEE says the
// bits are the CPU's. Adafactor's alone are near them, because its means are added in another
// order. None waits for the device.
//
// Lists by index, one launch for many tensors (LibTorch's _foreach_ operators): no tensor is empty,
// those of one index have one shape, all are of one dtype and on one device, and there are as many
// of everything; but for state that the scalars do not use, whose list is empty.
namespace trireme {

/// `most` is empty without amsgrad.
void adamw_pass(at::TensorList p, at::TensorList g, at::TensorList m, at::TensorList v,
                at::TensorList most, c10::ArrayRef<AdamWScalars> s);
void adamod_pass(at::TensorList p, at::TensorList g, at::TensorList m, at::TensorList v,
                 at::TensorList mean, c10::ArrayRef<AdaModScalars> s);
void sgd_pass(at::TensorList p, at::TensorList g, at::TensorList m, c10::ArrayRef<SgdScalars> s);
void lion_pass(at::TensorList p, at::TensorList g, at::TensorList m, c10::ArrayRef<LionScalars> s);
void rmsprop_pass(at::TensorList p, at::TensorList g, at::TensorList v, at::TensorList mean,
                  at::TensorList buffer, c10::ArrayRef<RmspropScalars> s);
void adagrad_pass(at::TensorList p, at::TensorList g, at::TensorList sum,
                  c10::ArrayRef<AdagradScalars> s);
void lars_pass(at::TensorList p, at::TensorList g, at::TensorList buffer,
               c10::ArrayRef<LarsScalars> s);
void lamb_moments(at::TensorList g, at::TensorList m, at::TensorList v,
                  c10::ArrayRef<LambScalars> s);
std::vector<at::Tensor> lamb_direction(at::TensorList p, at::TensorList m, at::TensorList v,
                                       c10::ArrayRef<LambScalars> s);
void lamb_update(at::TensorList p, at::TensorList m, at::TensorList v, c10::ArrayRef<LambScalars> s,
                 c10::ArrayRef<double> step);
/// The whole step of one parameter, seen as a matrix; `row` is undefined where it has one row.
void adafactor_pass(at::Tensor p, const at::Tensor& g, at::Tensor row, at::Tensor column,
                    const AdafactorScalars& s);

}  // namespace trireme
