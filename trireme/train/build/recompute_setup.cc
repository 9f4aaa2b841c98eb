// SPDX-License-Identifier: Apache-2.0
#include "trireme/train/build/recompute_setup.h"

#include <algorithm>

#include "trireme/base/check.h"
#include "trireme/comm/objects.h"
#include "trireme/config/sections/recompute.h"
#include "trireme/tensor/live_bytes.h"
#include "trireme/tensor/random/random.h"

namespace trireme {
namespace {

constexpr double kMiB = 1048576;

// The bytes that one forward holds while its loss exists.
int64_t bytes_of_forward(Run& run, const std::vector<bool>& recompute) {
  std::vector<int64_t> ids;
  for (int64_t i = 0; i < run.batches.micro; ++i) ids.push_back(i % run.train_data->size());
  const MicroBatch micro = on_device(run.train_data->get(ids), run.device);
  run.model->set_recompute(recompute);
  RandomScope random({static_cast<uint64_t>(run.seed), run.step, micro.samples});
  LiveBytes live(run.device.type());
  const at::Tensor loss = run.loss(run, micro);
  return live.now();
}

// Ranks of one model compute blocks together, those that are computed again too: so all choose by
// what the fullest of them keeps, although their parts of heads or of positions may differ.
ActivationBytes most_of_ranks(ActivationBytes bytes, const Group& group) {
  std::vector<int64_t> own = {bytes.before};
  for (const BlockBytes& block : bytes.blocks) own.push_back(block.kept);
  for (const auto& of_rank : all_gather_object(group, own)) {
    bytes.before = std::max(bytes.before, of_rank.at(0));
    for (size_t i = 0; i < bytes.blocks.size(); ++i)
      bytes.blocks[i].kept = std::max(bytes.blocks[i].kept, of_rank.at(i + 1));
  }
  return bytes;
}

}  // namespace

ActivationBytes measure_activations(Run& run) {
  std::vector<bool> recompute(static_cast<size_t>(run.model->blocks()), true);
  check<UsageError>(!recompute.empty(), "{} has no blocks to measure", run.model->name());
  const int64_t least = bytes_of_forward(run, recompute);
  recompute[0] = false;
  const int64_t one_kept = bytes_of_forward(run, recompute);
  ActivationBytes bytes;
  bytes.before = least;
  bytes.blocks.assign(recompute.size(), {one_kept - least, 0});
  return bytes;
}

std::string set_up_recompute(Run& run, const Config& config) {
  if (run.model->blocks() == 0) return "";  // the configuration has refused both keys
  const auto section = config.section<RecomputeSection>();
  const double budget_mb = section.activation_memory_mb;
  std::vector<bool> recompute = every_kth(run.model->blocks(), section.recompute_every);
  std::string memory;
  if (budget_mb > 0) {
    const ActivationBytes bytes = most_of_ranks(measure_activations(run), run.mesh.world());
    const RecomputePlan plan = plan_recompute(bytes, static_cast<int64_t>(budget_mb * kMiB));
    check<UsageError>(
        plan.fits,
        "{}: training.activation_memory_mb is {:g}, and a micro-batch of {} needs {:.1f} MiB for "
        "its activations with every block recomputed ({:.1f} with none). Give that much, or a "
        "smaller train_micro_batch_size_per_gpu",
        config.origin("training.activation_memory_mb"), budget_mb, run.batches.micro,
        static_cast<double>(plan.peak) / kMiB,
        static_cast<double>(peak_bytes(bytes, std::vector<bool>(bytes.blocks.size()))) / kMiB);
    recompute = plan.recompute;
    memory = fmt::format(", activations {:.1f} of {:g} MiB", static_cast<double>(plan.peak) / kMiB,
                         budget_mb);
  }
  const auto blocks = std::count(recompute.begin(), recompute.end(), true);
  run.model->set_recompute(recompute);
  if (blocks == 0 && memory.empty()) return "";
  return fmt::format("{} of {} blocks recomputed{}", blocks, recompute.size(), memory);
}

}  // namespace trireme
