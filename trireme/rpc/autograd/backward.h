// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <vector>

#include "trireme/rpc/autograd/contexts.h"

namespace trireme::rpc::autograd {

/// A backward from these losses, over all workers: finds what takes part, plans it, and runs it. On
/// the worker of the losses, whose thread this is.
void run_backward(const Worker& me, Contexts& contexts,
                  const std::shared_ptr<LocalContext>& context,
                  const std::vector<at::Tensor>& losses, const BackwardKind& kind,
                  Deadline deadline);

}  // namespace trireme::rpc::autograd
