// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "trireme/base/export.h"
#include "trireme/interop/tree.h"

namespace trireme::interop {

/// The tree as a pickle of protocol 2, as torch.save writes a state_dict: tensors by
/// torch._utils._rebuild_tensor_v2 of typed storages. Takes what torch.load(weights_only=True)
/// takes: None, bool, int, float, str, list, tuple, dict, OrderedDict, tensors and dtypes;
/// UsageError for anything else.
TRIREME_API std::string write_pickle(const Tree& tree);

}  // namespace trireme::interop
