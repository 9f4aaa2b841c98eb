// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "trireme/mesh/coordinates.h"
#include "trireme/mesh/mesh.h"
#include "trireme/shard/sharded_parameters.h"
#include "trireme/tensor/parameter_layout.h"

// Over which ranks gradients are added, and over which of them ZeRO divides them: from a mesh and
// layouts, in one place. Pure, but for the groups.
namespace trireme {

/// Parameters whose gradients are added over the same axes.
struct GradientFamily {
  /// Axes on which ranks see other samples or other positions: summed in a step's round. Axes of
  /// one rank are left out, here and below.
  std::vector<std::string> data;
  /// ZeRO: each rank of `shards` owns a part, and the ranks of `replicas` own the same one.
  /// Together they are `data`.
  std::vector<std::string> shards, replicas;
  /// Axes on which ranks hold parts of a model, and of these parameters the whole, whose gradients
  /// are parts of a sum there (layout `sum`: norms under sequence_parallel): added once the round
  /// is closed.
  std::vector<std::string> model;
  std::vector<std::string> parameters;
  bool same_axes(const GradientFamily& other) const {
    return data == other.data && model == other.model;
  }
};

/// Of what every rank of the data axes has: dp_replicate × dp_shard × cp, and ep where that is an
/// axis of its own, whose ranks see other samples too. Without parameters.
GradientFamily dense_family(const MeshShape& mesh);

/// The families of these parameters, in the order of their first ones; one that no layout names is
/// whole and the same on all ranks. Experts (layout `split` on ep) are added over the ranks that
/// have the same ones: dp_replicate × edp where experts fold, dp_replicate × dp_shard × cp where ep
/// is an axis.
std::vector<GradientFamily> gradient_families(const MeshShape& mesh,
                                              const std::vector<std::string>& parameters,
                                              const ParameterLayouts& layouts);

/// Of parameters of one run, whose gradients share a round: UsageError, which names one, where some
/// of them are added over other ranks than dense ones.
void check_one_round(const MeshShape& mesh, const std::vector<std::string>& parameters,
                     const ParameterLayouts& layouts);

/// Those groups of a mesh; a group of one where there is no axis. Every rank calls them, in the
/// same order.
Group group_over(const DeviceMesh& mesh, const std::vector<std::string>& axes);
ShardGroups shard_groups_of(const DeviceMesh& mesh, const GradientFamily& family);

}  // namespace trireme
