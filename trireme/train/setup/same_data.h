// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>

#include "trireme/comm/group.h"
#include "trireme/train/run.h"

namespace trireme {

/// open(run) on every rank, which opens the run's data. What one rank cannot open is everybody's
/// error, naming that rank; so is data that is not rank 0's (UsageError): each rank would train on
/// its part of another order. Every rank must call it.
void open_same_data(Run& run, const std::function<void(Run&)>& open);

}  // namespace trireme
