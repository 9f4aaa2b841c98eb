// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "trireme/config/config.h"
#include "trireme/mesh/mesh.h"
#include "trireme/pipeline/schedule/stage_blocks.h"
#include "trireme/shard/model_stages.h"
#include "trireme/train/model_axes/through_stages.h"
#include "trireme/train/precision/precision.h"
#include "trireme/train/program/trainer_impl.h"

namespace trireme {

/// Why the program cannot be divided over so many ranks as the configuration says, and what to do;
/// "" if it can, and if it is not divided. Makes no piece.
std::string fault_of_axes(Program& program, const Config& config, const std::vector<Piece>& pieces,
                          int world);

/// The pieces of a chain program as stages of a pipeline. `trainer`, and the part that trains them,
/// outlive it.
class ProgramStages {
 public:
  /// fault_of_axes() has found nothing.
  ProgramStages(Trainer::Impl& trainer, std::vector<Piece> pieces);

  /// Divides the pieces, and measures them on `data` if the configuration says so. Every rank of
  /// the mesh must call it, before the functions below.
  void divide(const DeviceMesh& mesh, const PrecisionPlan& precision, at::Device device,
              const DataSource* data);
  const pipeline::PipelinePlan& plan() const { return plan_.value(); }
  /// This rank's pieces, stage by stage.
  std::vector<const Piece*> here() const;
  ModelStages model_stages() const;
  /// Throws UsageError if none of this rank's pieces has a parameter to train.
  void check_trained(const torch::nn::Module& model) const;
  StageFunctions functions(Trainer::Impl::Part& part) const;
  std::string describe() const;

 private:
  std::vector<double> measured(const DeviceMesh& mesh, const PrecisionPlan& precision,
                               at::Device device, const DataSource* data);

  Trainer::Impl& trainer_;
  ChainProgram& program_;
  const std::vector<Piece> pieces_;
  int rank_ = 0;  // on the pipeline's axis
  std::optional<pipeline::PipelinePlan> plan_;
  std::vector<double> seconds_;  // of each piece, if they were measured
};

}  // namespace trireme
