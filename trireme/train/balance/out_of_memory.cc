// SPDX-License-Identifier: Apache-2.0
#include "trireme/train/balance/out_of_memory.h"

#include <new>
#include <string_view>

#include "trireme/base/check.h"
#include "trireme/train/run.h"

namespace trireme {

OutOfMemoryPolicy::~OutOfMemoryPolicy() = default;

bool is_out_of_memory(const std::exception& error) {
  if (dynamic_cast<const std::bad_alloc*>(&error)) return true;
  if (dynamic_cast<const Error*>(&error)) return false;  // our errors name their cause
  const std::string_view text = error.what();
  for (const char* words : {"not enough memory", "can't allocate memory", "out of memory"})
    if (text.find(words) != text.npos) return true;
  return false;
}

namespace {

class EndTheRun final : public OutOfMemoryPolicy {
 public:
  int contributions(const Batch& batch) const override { return static_cast<int>(batch.size()); }
  void run(Run& run, const Batch& batch, const Compute& compute) override {
    size_t at = 0;
    try {
      compute(batch, at);
    } catch (const std::exception& e) {
      if (!is_out_of_memory(e)) throw;
      fail<ResourceError>(
          "rank {} ran out of memory at {} samples in step {}: lower "
          "train_micro_batch_size_per_gpu, set training.recompute_every, or let "
          "balance.mode=throughput halve micro-batches by itself: {}",
          run.world().rank(), batch.at(at).samples.size(), run.step + 1, brief(e));
    }
  }
};

}  // namespace

std::shared_ptr<OutOfMemoryPolicy> end_on_out_of_memory() { return std::make_shared<EndTheRun>(); }

}  // namespace trireme
