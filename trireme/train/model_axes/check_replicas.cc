// SPDX-License-Identifier: Apache-2.0
#include "trireme/train/model_axes/check_replicas.h"

#include <utility>
#include <vector>

#include "trireme/base/check.h"
#include "trireme/base/trace.h"
#include "trireme/comm/objects.h"
#include "trireme/config/sections/training.h"
#include "trireme/layers/tensor_parallel/tensor_parallel.h"
#include "trireme/train/model_axes/replica_digests.h"

namespace trireme {
namespace {

class CheckReplicas final : public StepFeature {
 public:
  CheckReplicas(int64_t every, const Run& run)
      : every_(every),
        mesh_(run.mesh),
        gradients_(*run.gradients),
        layouts_(run.layouts),
        sharded_(run.collective_forward),
        weights_(run.weights) {}

  void closed(int64_t step) override { step_ = step + 1; }

  void stepped(const FinishedStep&) override {
    if (step_ % every_ != 0) return;
    Span span("train", "check replicas");
    std::vector<ReplicaDigest> mine;
    // At stage 3 no rank has whole parameters between steps.
    for (const auto& [name, p] : sharded_ ? gradients_.owned() : weights_) {
      const auto layout = layouts_.find(name);
      const bool part = layout != layouts_.end() && layout->second.on("tp") == OnAxis::split;
      // Copies have other ranges of the parameter when they are sharded.
      mine.push_back(
          {sharded_ ? name : whole_name(layouts_, name), detail::digest_of(p), part, sharded_});
    }
    const ReplicaDifference found =
        first_replica_difference(mesh_.shape(), all_gather_object(mesh_.world(), mine));
    if (found.rank < 0) return;
    throw NumericError(
        found.rank == found.other
            ? fmt::format("parameter '{}' should be equal in two stages of rank {}, and differs "
                          "after step {} (training.check_replicas): something but the optimizer "
                          "wrote to one of them; the last checkpoint is from before",
                          found.parameter, found.rank, step_)
            : fmt::format("parameter '{}' should be equal on the ranks of axis {}, and differs "
                          "between ranks {} and {} after step {} (training.check_replicas). Look "
                          "for what these ranks do differently: data, random numbers, a library or "
                          "a processor; the last checkpoint is from before",
                          found.parameter, found.axis, found.rank, found.other, step_),
        {found.other, -1, found.parameter, step_});
  }

 private:
  const int64_t every_;
  const DeviceMesh mesh_;
  Gradients& gradients_;
  const ParameterLayouts layouts_;
  const bool sharded_;
  const NamedTensors weights_;
  int64_t step_ = 0;
};

}  // namespace

std::shared_ptr<StepFeature> check_replicas_feature(const Config& config, const Run& run) {
  const int64_t every = config.section<TrainingSection>().check_replicas;
  if (every == 0 || run.world().size() == 1) return nullptr;
  return std::make_shared<CheckReplicas>(every, run);
}

}  // namespace trireme
