// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trireme/base/export.h"
#include "trireme/config/config.h"
#include "trireme/config/sections/model.h"
#include "trireme/planner/model_part.h"

// The networks of trireme/models as numbers: which parameters of which shapes they have, without
// building them. A test holds them against the real ones.
namespace trireme {

/// What a network's sizes follow from; what does not belong to its type has its default.
struct ModelGeometry {
  ModelGeometry() : ModelGeometry(ModelSection()) {}
  TRIREME_API explicit ModelGeometry(const ModelSection& model);

  std::string type;  // gpt, mlp, net, convnet
  int64_t layers, width, heads, context, vocab;
  bool tied_head;
  double dropout;
  std::vector<int64_t> mlp_sizes;  // input, hidden …, classes
};

/// UsageError for a type that is not here.
TRIREME_API ModelGeometry geometry_of(const Config& config);

struct ParameterShape {
  std::string name;            // as named_parameters() has it
  std::vector<int64_t> shape;  // as LibTorch has it
  int unit = 0;  // what ZeRO-3 gathers together: 0 is what is outside of blocks (layers of an MLP)
  /// Of a rank's part of a divided model: how many of its ranks hold the same of this, and share in
  /// writing it; 0: a copy of what another stage saves.
  int savers = 1;
  int64_t numel() const;
};

/// One child of the network itself.
struct ModuleShape {
  std::string name;  // "conv1"
  std::string type;  // as PyTorch calls it: "Conv2d", "ModuleList"
  int64_t parameters = 0;
  double cost = 1;  // of a program's piece: Piece::cost
};

struct ModelShape {
  std::vector<ModuleShape> modules;
  std::vector<ParameterShape> parameters;  // in the order of named_parameters()
  /// Of a program's pieces: what the rank with the most holds of each of them (parallelism.tp), in
  /// the same order.
  std::vector<ParameterShape> of_a_rank = {};
  int64_t numel() const;
};

TRIREME_API ModelShape model_shape(const ModelGeometry& geometry);
/// What one rank has of it. Only gpt can be divided.
TRIREME_API ModelShape model_shape(const ModelGeometry& geometry, const ModelPart& part);

}  // namespace trireme
