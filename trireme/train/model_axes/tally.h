// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "trireme/mesh/mesh.h"
#include "trireme/optim/norm_parts.h"
#include "trireme/tensor/parameter_layout.h"
#include "trireme/train/gradients/gradients.h"

namespace trireme {

/// What a step's round of gradients told, on which all ranks must act alike.
struct StepFacts {
  Gradients::Reports reports;       // one entry for each rank of the data axes, cp included
  Gradients::NotFinite not_finite;  // its rank is one of the world
};

/// Makes the facts of a step, which ranks that reduce gradients with each other have in common, the
/// facts of all ranks of the mesh. One rank of each copy of the model speaks for its loss: the
/// first that computes it.
class Tally {
 public:
  virtual ~Tally() = default;
  /// Every rank must call it once a step, when its round is closed; the result is the same on all.
  virtual StepFacts agree(StepFacts own) = 0;
  /// The rank of the world that told entry `dp_rank` of the reports.
  virtual int world_rank(int dp_rank) const = 0;
};

/// `names`: lists the parameters of the whole model, in one order on all ranks. `layouts`: of this
/// rank's. `computes_loss`: this rank does. Every rank must call it.
std::unique_ptr<Tally> make_tally(const DeviceMesh& mesh, std::shared_ptr<const NormParts> names,
                                  const ParameterLayouts& layouts, bool computes_loss);

}  // namespace trireme
