// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>

#include "trireme/mesh/mesh.h"
#include "trireme/optim/norm_parts.h"
#include "trireme/tensor/parameter_layout.h"
#include "trireme/train/gradients/gradients.h"

namespace trireme {

/// For norms of the whole model: of a parameter of which ranks hold parts, each element counts
/// once, wherever it is. Without model axes it is what `gradients` say. `exact`: the blocks of all
/// parameters are exchanged, and the norm of a model that is divided only between parameters has
/// the bits of one rank with all of them; else one number per parameter is. Every rank of the mesh
/// must call it.
std::shared_ptr<const NormParts> mesh_norm_parts(const DeviceMesh& mesh, Gradients& gradients,
                                                 const ParameterLayouts& layouts, bool exact);

/// Whether ranks of axis tp hold elements of parts in common (key/value heads that they share).
/// Every rank of the mesh must call it.
bool parts_share_elements(const DeviceMesh& mesh, const ParameterLayouts& layouts);

/// The number of trained parameters of the whole model. Every rank of the mesh must call it.
int64_t model_numel(const DeviceMesh& mesh, const Gradients& gradients,
                    const ParameterLayouts& layouts);

}  // namespace trireme
