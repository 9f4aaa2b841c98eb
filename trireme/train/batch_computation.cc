// SPDX-License-Identifier: Apache-2.0
#include "trireme/train/batch_computation.h"

#include <numeric>

#include "trireme/base/check.h"
#include "trireme/tensor/host_scalars.h"
#include "trireme/tensor/random/random.h"
#include "trireme/train/run.h"

namespace trireme {
namespace {

class InTurn final : public BatchComputation {
 public:
  void train(Run& run, const Batch& batch, int stop_asked, size_t& i) override {
    LossSum total;
    HostScalars losses;
    for (i = 0; i < batch.size(); ++i) {
      const MicroBatch& micro = batch[i];
      RandomScope random({static_cast<uint64_t>(run.seed), run.step, micro.samples});
      run.gradients->begin_backward(0, static_cast<int>(i));
      at::Tensor loss = run.loss(run, micro);
      if (micro.weight == 0) loss = loss * 0;  // a rank without samples takes part with zeros
      check<UsageError>(loss.requires_grad(),
                        "the loss does not depend on any parameter: nothing can be trained");
      losses.add(loss);
      if (run.tells_weight()) total.weight += micro.weight;
      // With the last bucket, which may be sent in this backward. A device is waited for once a
      // step.
      if (i + 1 == batch.size()) {
        const auto& all = losses.read();
        total.sum = std::accumulate(all.begin(), all.end(), 0.0);
      }
      run.gradients->tell(total, stop_asked);
      run.scaling->scale(loss).backward();
      for (const auto& feature : run.features)
        feature->micro_batch_done(run.gradients->parameters(), static_cast<double>(micro.weight));
    }
  }

  std::optional<std::vector<at::Tensor>> outputs(Run& run, const MicroBatch& micro) override {
    return run.compute->forward_list({micro.input});
  }
};

}  // namespace

std::unique_ptr<BatchComputation> compute_in_turn() { return std::make_unique<InTurn>(); }

}  // namespace trireme
