// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/CPUGeneratorImpl.h>

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "trireme/checkpoint/async_saver.h"
#include "trireme/checkpoint/reader.h"
#include "trireme/tensor/host_scalars.h"
#include "trireme/train/evaluate.h"
#include "trireme/train/program/program_model.h"
#include "trireme/train/run.h"
#include "trireme/train/save_schedule.h"
#include "trireme/train/trainer.h"

// The implementation of Trainer: one run per update, and what they share.
namespace trireme {

/// The result of an update in the current step.
struct UpdateDone {
  std::string name;
  Run* run = nullptr;
  StepReport report;
  std::vector<std::pair<std::string, double>> terms;  // means over ranks, of more than one term
};

struct Network::Impl {
  struct Place {
    ProgramModel* model = nullptr;
    size_t piece = 0;
    Run* run = nullptr;  // null: in no update
  };
  std::map<std::string, Place> places;
  std::vector<std::string> paths;  // of those, in the order of Program::make()
  bool divided = false;            // other ranks have other pieces
  bool training = false;           // an update is running
};

class ChainProgram;
class ProgramStages;

struct Trainer::Impl {
  struct Part {
    std::string name;
    Run run;
    std::shared_ptr<ProgramModel> model;      // null: a built-in model
    Loss loss;                                // of the running update
    std::map<std::string, double> factors;    // of its terms
    std::map<std::string, HostScalars> sums;  // of its terms, by micro-batch
    bool inputs_compared = false;             // over ranks that hold parts of the same layers
  };

  Impl(Program& p, const Config& c, Group g)
      : program(p), config(c), group(std::move(g)), net(network) {}

  Program& program;
  const Config config;
  const Group group;
  bool built_in = false;
  std::vector<std::unique_ptr<Part>> parts;  // the first is the one that reads data
  std::shared_ptr<ProgramModel> fixed;       // pieces in no update; null: there are none
  ParameterLayouts fixed_layouts;            // of their layers, if ranks hold parts of them
  std::shared_ptr<ProgramStages> stages;     // of a pipeline; null: each rank has all pieces
  Network::Impl network;
  Network net;
  Trainer* owner = nullptr;
  at::Generator generator = at::detail::createCPUGenerator();
  int64_t step = 0;
  StepWish wish;                 // of this rank, in this step
  int heard = 0;                 // from all ranks with the updates of this step: a wish's code
  std::vector<UpdateDone> done;  // in this step

  /// The number of the epoch that the last step ended, from 1; 0: it ended none.
  int64_t epoch_ended() const;

  Run& first() { return parts.front()->run; }
  const Run& first() const { return parts.front()->run; }

  StepReport update(const std::string& name, const Batch& batch, const Loss& loss);
  /// Takes a step of the program, with what this rank wishes; returns what all ranks together do.
  StepWish take_step(StepWish wish_here);
  std::optional<Evaluation> built_in_evaluation();
  std::vector<HeldOutSums::Sum> evaluate();
  /// The means of an update's terms over all ranks, if there are several.
  std::vector<std::pair<std::string, double>> means_of_terms(Part& part, int64_t weight);
  /// Evaluates a micro-batch of held-out data.
  void evaluate(const MicroBatch& micro, HeldOutSums& sums);
  /// Takes the ranks' wish out of an update's report.
  StepReport heard_in(StepReport report);
  void fixed_state(StateVisitor& visitor);
  /// Visits everything that a checkpoint holds.
  void state(StateVisitor& visitor);
  /// The same with the loss of a step that was evaluated.
  void state(StateVisitor& visitor, std::optional<double> held_out_loss);
  /// No older step is deleted. What fails on one rank all throw, in its words.
  std::string save(const std::string& folder, std::optional<double> held_out_loss);
  /// The same by `saver`, which has its folder: returns when the copy is made.
  void save(AsyncSaver& saver, std::optional<double> held_out_loss,
            AsyncSaver::Published published);
  /// In memory alone.
  void hold(AsyncSaver& saver);
  /// `held`: the step, if it is in memory; else it is at `path`.
  CheckpointInfo load(const std::string& path, const std::shared_ptr<HeldStep>& held);
};

}  // namespace trireme
