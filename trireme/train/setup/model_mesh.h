// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>

#include "trireme/base/export.h"
#include "trireme/comm/group.h"
#include "trireme/config/config.h"
#include "trireme/layers/context_parallel/context_parallel.h"
#include "trireme/layers/tensor_parallel/tensor_parallel.h"
#include "trireme/mesh/mesh.h"

namespace trireme {

/// The ranks of a run, arranged as the configuration's section `parallelism` says: pp × dp × cp ×
/// tp,
/// with the groups that a run needs. Every rank must call it. UsageError for degrees that do not
/// multiply to the ranks.
TRIREME_API DeviceMesh mesh_of(const Config& config, const Group& world);

/// Runs what makes a run on those ranks. Where it throws on one of them the groups of the mesh end,
/// so that no rank waits for it: the others throw an error that names it.
TRIREME_API void or_all_fail(const DeviceMesh& mesh, const std::function<void()>& make);

/// What the layers of a model on that mesh are made with: over parallelism.tp ranks, with
/// parallelism.sequence_parallel; of one rank where tp is 1.
TRIREME_API TensorParallel tensor_parallel_of(const Config& config, const DeviceMesh& mesh);

/// Over parallelism.cp ranks, as parallelism.cp_method and cp_balance say; of one rank where cp is
/// 1.
TRIREME_API ContextParallel context_parallel_of(const Config& config, const DeviceMesh& mesh);

/// What tensor_parallel_of() gives, without ranks, for planning: of the last rank, which has the
/// most.
TRIREME_API TensorParallel imagined_tensor_parallel(const Config& config);

}  // namespace trireme
