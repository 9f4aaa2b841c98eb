// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <vector>

#include "trireme/mesh/mesh.h"
#include "trireme/tensor/parameter_layout.h"
#include "trireme/train/gradients/gradients.h"
#include "trireme/train/step_feature.h"

namespace trireme {

/// With sequence_parallel, norms, positions and the biases of row-parallel layers see a part of the
/// positions on each tensor-parallel rank: once a step's round is closed, their gradients are added
/// over that axis, in one message. One feature for each family of gradients with such an axis
/// (train/gradients/gradient_families.h); `gradients` outlives them. Every rank of the mesh must
/// call it.
std::vector<std::shared_ptr<StepFeature>> shared_sums(const DeviceMesh& mesh, Gradients& gradients,
                                                      const ParameterLayouts& layouts);

/// Marks what an earlier stage holds too (a head tied to the embedding), on another rank or on this
/// one, as counted there. Every rank of the mesh must call it.
void count_tied_stages_once(const DeviceMesh& mesh, ParameterLayouts& layouts);

/// With stages, a weight that several of them use (a head tied to the embedding) is a parameter of
/// each, and its gradients are added over all of them, on the ranks that have it. Null on other
/// ranks, and where there is none. `gradients` outlives it. Every rank of the mesh must call it.
std::shared_ptr<StepFeature> tied_stage_sums(const DeviceMesh& mesh, Gradients& gradients,
                                             const ParameterLayouts& layouts);

}  // namespace trireme
