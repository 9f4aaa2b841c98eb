// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "trireme/train/program/trainer_impl.h"

namespace trireme {

/// On a device: computes a program's loss and its gradients once, on two samples of its data, and
/// changes nothing by it. UsageError on all ranks if the device lacks an operator
/// (train/build/device_rehearsal.h). Every rank calls it.
///
/// Not looked at: programs with several updates, whose step() says what each of them computes;
/// those that make their own batches; stages of a pipeline; the backward of ZeRO-3, which belongs
/// to a step. These meet such an operator in step 1, before a weight changes.
void rehearse_loss(Trainer::Impl& trainer);

}  // namespace trireme
