// SPDX-License-Identifier: Apache-2.0
#include "trireme/train/model_axes/through_stages.h"

#include <map>
#include <numeric>
#include <vector>

#include "trireme/base/check.h"
#include "trireme/pipeline/pipeline.h"
#include "trireme/shard/fully_sharded.h"
#include "trireme/tensor/host_scalars.h"
#include "trireme/tensor/random/random.h"
#include "trireme/train/run.h"

namespace trireme {
namespace {

using pipeline::Action;
using pipeline::PipelinePlan;
using Tensors = std::vector<at::Tensor>;

class ThroughStages final : public BatchComputation {
 public:
  ThroughStages(const DeviceMesh& mesh, const PipelinePlan& plan, at::Device device,
                StageFunctions functions)
      : functions_(std::move(functions)),
        micro_batches_(static_cast<size_t>(plan.schedule.micro_batches)) {
    const Group group = mesh.group("pp");
    std::vector<PipelineStage> stages;
    for (int s = 0; s < plan.schedule.stages(); ++s) {
      if (plan.schedule.rank_of_stage[static_cast<size_t>(s)] != group.rank()) continue;
      own_[s] = static_cast<int>(stages.size());
      stages.push_back({s, [this, s, own = stages.size()](const Tensors& inputs, int i) {
                          return forward(s, own, inputs, i);
                        }});
    }
    backwards_ = stages.size() * micro_batches_;
    PipelineOptions options{
        .device = device,
        .around = [this](const Action& a, const std::function<void()>& body) { around(a, body); }};
    if (plan.schedule.has_units())
      options.reduce_gradients = [this](int) { run_->gradients->finish_backward(); };
    if (plan.schedule.has_gathers()) {
      options.unshard = [this](int stage) { told(stage, &FullySharded::unshard); };
      options.reshard = [this](int stage) { told(stage, &FullySharded::reshard); };
    }
    pipeline_ = std::make_unique<Pipeline>(group, plan.schedule, std::move(stages), options);
  }

  void train(Run& run, const Batch& batch, int stop_asked, size_t& at) override {
    check<UsageError>(batch.size() == micro_batches_,
                      "a step of {} micro-batches, and the pipeline is for {}", batch.size(),
                      micro_batches_);
    const Now now(*this, run, batch, &at);
    stop_asked_ = stop_asked;
    backwards_left_ = backwards_;
    backwards_of_.assign(own_.size(), 0);
    losses_.emplace();
    total_ = {};
    if (run.tells_weight())
      for (const MicroBatch& micro : batch) total_.weight += micro.weight;
    pipeline_->step([](int) { return Tensors(); },
                    [&](const Tensors& outputs, int i) { return loss(outputs, i); });
  }

  bool computes_loss() const override { return pipeline_->has_last_stage(); }

  std::optional<Tensors> outputs(Run& run, const MicroBatch& micro) override {
    const Batch one{micro};
    const Now now(*this, run, one, nullptr);
    auto all = pipeline_->evaluate([](int) { return Tensors(); }, 1);
    if (all.empty()) return std::nullopt;
    return std::move(all[0]);
  }

 private:
  // What is computed at the moment.
  struct Now {
    Now(ThroughStages& stages, Run& run, const Batch& batch, size_t* at) : stages_(stages) {
      stages.run_ = &run, stages.batch_ = &batch, stages.at_ = at;
    }
    ~Now() { stages_.run_ = nullptr, stages_.batch_ = nullptr, stages_.at_ = nullptr; }
    ThroughStages& stages_;
  };

  const MicroBatch& micro_batch(int i) const { return batch_->at(static_cast<size_t>(i)); }

  Tensors forward(int stage, size_t own, const Tensors& inputs, int i) {
    return functions_.forward(*run_, stage, own, inputs, micro_batch(i));
  }

  at::Tensor loss(const Tensors& outputs, int i) {
    const MicroBatch& micro = micro_batch(i);
    at::Tensor sum = functions_.loss(*run_, outputs, micro);
    if (micro.weight == 0) sum = sum * 0;  // a rank without samples takes part with zeros
    losses_->add(sum);
    return run_->scaling->scale(sum);
  }

  // Gathers or drops a stage, where the schedule says so. Below stage 3 of ZeRO there is nothing to
  // do: a table of the user's own may say it all the same.
  void told(int stage, void (FullySharded::*what)(int)) {
    auto* sharded = dynamic_cast<FullySharded*>(run_->gradients->sharded());
    if (sharded) (sharded->*what)(own_.at(stage));
  }

  void around(const Action& a, const std::function<void()>& body) {
    const MicroBatch& micro = micro_batch(a.micro_batch);
    if (!at_) return body();  // held-out data
    *at_ = static_cast<size_t>(a.micro_batch);
    RandomScope random({static_cast<uint64_t>(run_->seed), run_->step, micro.samples});
    if (!gives_weight_gradient(a.kind)) return body();
    const int own = own_.at(a.stage);
    run_->gradients->begin_backward(own, backwards_of_[static_cast<size_t>(own)]++);
    // The last backward of a rank comes after all forwards of its last stage. A device is waited
    // for once a step.
    if (--backwards_left_ == 0) {
      const auto& all = losses_->read();
      total_.sum = std::accumulate(all.begin(), all.end(), 0.0);
    }
    run_->gradients->tell(total_, stop_asked_);
    body();
    for (const auto& feature : run_->features)
      feature->micro_batch_done(run_->gradients->parameters(), static_cast<double>(micro.weight));
  }

  const StageFunctions functions_;
  const size_t micro_batches_;
  std::map<int, int> own_;         // this rank's stages, by their numbers in the network
  std::vector<int> backwards_of_;  // so far in this step
  size_t backwards_ = 0, backwards_left_ = 0;
  std::unique_ptr<Pipeline> pipeline_;
  Run* run_ = nullptr;
  const Batch* batch_ = nullptr;
  size_t* at_ = nullptr;
  int stop_asked_ = 0;
  LossSum total_;
  std::optional<HostScalars> losses_;
};

}  // namespace

StageFunctions stages_of_model() {
  return {[](Run& run, int, size_t own, const Tensors& inputs, const MicroBatch& micro) {
            run.model->select_stage(own);
            Tensors all = inputs;
            all.push_back(micro.input);
            return run.compute->forward_list(all);
          },
          [](Run& run, const Tensors& outputs, const MicroBatch& micro) {
            return run.model->loss_sum(outputs.at(0), micro.target);
          }};
}

std::shared_ptr<BatchComputation> compute_through_stages(const DeviceMesh& mesh,
                                                         const PipelinePlan& plan,
                                                         at::Device device,
                                                         StageFunctions functions) {
  return std::make_shared<ThroughStages>(mesh, plan, device, std::move(functions));
}

std::vector<pipeline::StageBlocks> stages_here(const PipelinePlan& plan, int rank) {
  std::vector<pipeline::StageBlocks> here;
  for (size_t s = 0; s < plan.stages.size(); ++s)
    if (plan.schedule.rank_of_stage[s] == rank) here.push_back(plan.stages[s]);
  return here;
}

}  // namespace trireme
