// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "trireme/base/export.h"

namespace torch::nn {
class Module;
}

namespace trireme {

/// What a module consists of, as PyTorch Lightning prints it before training: a row for each of its
/// submodules, and how many parameters there are.
///
///     | Name  | Type   | Params
///   ----------------------------
///   0 | conv1 | Conv2d | 320
///   …
///   1.2 M     Trainable params
///   0         Non-trainable params
///   1.2 M     Total params
///   4.800     Total estimated model params size (MB)
///
/// Lines end without spaces, and there is no newline at the end. A parameter under several names
/// counts once in the totals, and in each row that has it. The size is in 10^6 bytes, by each
/// parameter's dtype. Parameters that the module itself has beside its submodules are in the totals
/// alone, as in Lightning. Source: pytorch_lightning.core.memory.ModelSummary, 1.4.9.
TRIREME_API std::string module_summary(const torch::nn::Module& module);

/// "320", "18.5 K", "1.2 M": Lightning's short form of a count.
TRIREME_API std::string short_count(int64_t count);

}  // namespace trireme
