// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/base/export.h"

// Slurm's two compressed notations. UsageError (it names `variable`) for text that is neither.
namespace trireme {

/// "gpu[08-10,12],login" → gpu08 gpu09 gpu10 gpu12 login. Several brackets in a name multiply
/// ("r[1-2]n[1-2]"); zeros are kept.
TRIREME_API std::vector<std::string> expand_slurm_nodes(std::string_view text,
                                                        std::string_view variable);

/// "2(x3),1" → 2 2 2 1; the number at `node`, nullopt beyond the end.
TRIREME_API std::optional<int> slurm_tasks_on_node(std::string_view text, int node,
                                                   std::string_view variable);

}  // namespace trireme
