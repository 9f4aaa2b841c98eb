// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/nn/module.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "trireme/base/export.h"
#include "trireme/comm/group.h"
#include "trireme/config/config.h"
#include "trireme/models/model.h"
#include "trireme/tensor/tied_tensors.h"
#include "trireme/train/run.h"

namespace trireme {

/// What differs between the runs that one builder makes: of a built-in model, of a program's pieces
/// (train/program/program.h), and of a module whose loop is its owner's (train/engine.h).
struct RunParts {
  /// Sets train_data, held_out and data_identity; empty: the caller brings its batches.
  std::function<void(Run&)> open_data = {};
  /// Makes the model, telling of each unit.
  std::function<std::shared_ptr<Model>(const UnitMade&)> make_model;
  /// Instead of units: this module is there already, and at stage 3 it is one unit, the root.
  std::shared_ptr<torch::nn::Module> whole = nullptr;
  /// The names under which the model's tensors are saved.
  std::function<NamedTensors(NamedTensors)> names = {};
  TiedNames tied = {};
  RunLoss loss = {};
  /// What a step's loss is a mean over: so much for each of its samples, or (not 0) so much in all.
  int64_t weight_per_sample = 1, weight_of_step = 0;
  /// The run is a new one, and begins with the weights of checkpoint.init if that is given, which
  /// may hold names of these patterns besides.
  bool init = false;
  std::vector<std::string> elsewhere = {};
  /// Steps where neither training.steps nor training.epochs says it.
  int64_t default_steps = 1000;
};

/// Every rank calls it with the same configuration. UsageError for what it asks and this build
/// cannot do.
TRIREME_API Run build_run(const Config& config, Group group, const RunParts& parts);
/// Of the model and the data that the configuration names.
RunParts built_in_parts(const Config& config);
/// What a checkpoint holds of a model.
void model_state(Model& model, const NamedTensors& weights, StateVisitor& visitor);

}  // namespace trireme
