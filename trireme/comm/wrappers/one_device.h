// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include "trireme/base/check.h"
#include "trireme/comm/call.h"
#include "trireme/tensor/device/kind.h"

namespace trireme::detail {

/// UsageError where a call reads from one device and writes to another. For backends that choose by
/// the device of one of its tensors what is done with both.
inline void check_one_device(const Call& call) {
  if (!call.input || !call.output || !call.input->defined() || !call.output->defined()) return;
  check<UsageError>(call.input->device() == call.output->device(),
                    "{} at {}:{}: the input is on {} and the output on {}; move one of them to the "
                    "other's device",
                    name_of(call.named()), call.site.file, call.site.line,
                    device_text(call.input->device()), device_text(call.output->device()));
}

}  // namespace trireme::detail
