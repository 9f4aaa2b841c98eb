// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/nn/module.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "trireme/base/export.h"
#include "trireme/comm/group.h"
#include "trireme/config/config.h"
#include "trireme/models/model.h"
#include "trireme/shard/model_stages.h"
#include "trireme/tensor/tied_tensors.h"
#include "trireme/train/build/device_rehearsal.h"
#include "trireme/train/run.h"

namespace trireme {

/// What differs between the kinds of runs: of a built-in model, of a program's pieces
/// (train/program/program.h), and of a module whose loop the caller owns (train/engine.h).
struct RunParts {
  /// The ranks, where the caller has arranged them already (train/setup/model_mesh.h).
  DeviceMesh mesh = {};
  /// Sets train_data, held_out and data_identity. If empty, the caller brings its batches.
  std::function<void(Run&)> open_data = {};
  /// Makes what this rank of the mesh has of the model, and calls the UnitMade function for each
  /// unit.
  std::function<std::shared_ptr<Model>(const DeviceMesh&, const UnitMade&)> make_model;
  /// A module that already exists, instead of make_model; at stage 3 it is one unit, the root.
  std::shared_ptr<torch::nn::Module> whole = nullptr;
  /// What is rehearsed on a device before the run is built (train/build/device_rehearsal.h); empty:
  /// the optimizer alone.
  std::function<LeastModel()> least = {};
  /// The names under which the model's tensors are saved.
  std::function<NamedTensors(NamedTensors)> names = {};
  TiedNames tied = {};
  RunLoss loss = {};
  /// How micro-batches are computed; empty: the whole model on each, one after another. Every rank
  /// of the mesh calls it.
  std::function<std::shared_ptr<BatchComputation>(const Run&)> computation = {};
  /// This rank's stages of a pipeline; empty: the model is one. Called before the functions above;
  /// every rank of the mesh calls it.
  std::function<ModelStages(const DeviceMesh&)> stages = {};
  /// How the model is divided into them, for the start line; empty: nothing to say.
  std::function<std::string()> about_stages = {};
  /// What a step's loss is a mean over: a weight for each of its samples, or, if not 0, one for the
  /// whole step.
  int64_t weight_per_sample = 1, weight_of_step = 0;
  /// Where the data goes on, for a run that is resumed.
  std::optional<DataOrigin> data_origin = {};
  /// Where ranks are missing: what they take of a step (config/batches.h), and by what the learning
  /// rate is multiplied. Else as the configuration has it.
  std::optional<Batches> batches = {};
  double lr_factor = 1;
  /// The run is a new one and starts with the weights of checkpoint.init, if that is given.
  bool init = false;
  /// Patterns of names that those weights may hold besides.
  std::vector<std::string> elsewhere = {};
  /// The number of steps if neither training.steps nor training.epochs is given.
  int64_t default_steps = 1000;
};

/// UsageError on all ranks where parallelism.tp divides nothing: each rank would compute all of the
/// model. Every rank calls it, with the layouts of what it has.
void check_some_divided(const DeviceMesh& mesh, const ParameterLayouts& layouts, const Config& c);

/// Builds a run. Every rank must call it with the same configuration. Throws UsageError for
/// settings that this build does not support.
TRIREME_API Run build_run(const Config& config, Group group, const RunParts& parts);
/// Returns the parts for the model and the data that the configuration names.
RunParts built_in_parts(const Config& config);
/// Visits what a checkpoint holds of a model.
void model_state(Model& model, const NamedTensors& weights, StateVisitor& visitor);

}  // namespace trireme
