// SPDX-License-Identifier: Apache-2.0
#include "trireme/planner/memory_plan.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "trireme/config/sections/averaging.h"
#include "trireme/config/sections/checkpoint.h"
#include "trireme/config/sections/comm.h"
#include "trireme/config/sections/compression.h"
#include "trireme/config/sections/offload.h"
#include "trireme/config/sections/optimizer.h"
#include "trireme/config/sections/precision.h"
#include "trireme/config/sections/recompute.h"
#include "trireme/config/sections/zero.h"
#include "trireme/planner/exchange_memory.h"
#include "trireme/planner/snapshot_memory.h"

namespace trireme {
namespace {

constexpr double kMiB = 1048576;
constexpr int64_t kControl = 471040, kPair = 139264, kSmallBlocks = 4 << 20;

int bytes_of(const std::string& type) { return type == "fp32" ? 4 : 2; }

/// Which of DeepSpeed's and Apex's sections stores weights in half precision: fp16, bf16 or fp32.
std::string stored_type(const PrecisionSection& p) {
  if (p.fp16.enabled) return "fp16";
  if (p.bf16.enabled) return "bf16";
  const std::string level = p.amp.enabled ? p.amp.opt_level : "O0";
  return level == "O2" || level == "O3" ? p.amp.dtype : "fp32";
}

OptimizerShape optimizer_of(const OptimizerSection& s) {
  OptimizerShape o{s.type};
  o.momentum = s.momentum > 0;
  o.centered = s.centered;
  o.amsgrad = s.amsgrad;
  return o;
}

void read_precision(const Config& c, MemoryQuestion* q) {
  const auto precision = c.section<PrecisionSection>();
  const std::string type = stored_type(precision);
  q->weight_bytes = q->gradient_bytes = bytes_of(type);
  const auto& wire = precision.communication_data_type;
  q->wire_bytes = wire ? bytes_of(*wire) : q->gradient_bytes;
  q->master_bytes = type == "fp32" ? 0 : 4;
  q->compute_bytes = type == "fp16" && precision.fp16.emulate ? 4 : 0;
}

/// The local engine's control memory (comm/local/control.h) and its window for small blocks, of a
/// rank that is a process.
int64_t group_bytes(const Config& c, int64_t ranks) {
  if (ranks < 2 || c.section<CommSection>().backend != "local") return 0;
  const int64_t staging = ranks <= 2 ? 256 : ranks <= 4 ? 512 : 1024;
  return kControl + ranks * kPair + 2 * staging * 1024 + kSmallBlocks;
}

void read_zero(const Config& c, MemoryQuestion* q) {
  const auto zero = c.section<ZeroSection>();
  const auto offload = c.section<OffloadSection>();
  const auto comm = c.section<CommSection>();
  q->share_weights = zero.share_weights;
  const double bucket_mb = comm.bucket_mb > 0 ? comm.bucket_mb : comm.backend == "local" ? 4 : 25;
  q->bucket_elements =
      zero.reduce_bucket_size.value_or(static_cast<int64_t>(bucket_mb * kMiB / q->gradient_bytes));
  q->prefetch_elements = zero.prefetch_bucket_size.value_or(0);
  q->persistence_threshold = zero.param_persistence_threshold.value_or(0);
  q->live_elements = zero.max_live_parameters.value_or(0);
  q->states_on_disk = offload.optimizer.on_disk();
  q->parameters_on_disk = offload.parameters.on_disk();
  q->state_buffer_elements = q->states_on_disk ? offload.sub_group_size : 0;
  if (q->states_on_disk) {  // one part is stepped; with a pipeline another is read, one written
    q->state_buffer_elements *=
        1 + offload.optimizer.pipeline_read + offload.optimizer.pipeline_write;
  }
  if (q->parameters_on_disk)
    q->parameter_buffer_elements =
        offload.parameters.buffer_count * offload.parameters.buffer_size +
        offload.parameters.max_in_cpu;
}

ExchangeShape exchange_of(const Config& c, const MemoryQuestion& q, int ranks) {
  ExchangeShape e;
  e.ranks = ranks;
  e.gradient_bytes = q.gradient_bytes;
  const auto averaging = c.section<AveragingSection>();
  e.averaging = averaging.type;
  e.pseudo_gradients.type = averaging.compression;
  e.gradients = c.section<CompressionSection>().codec;
  return e;
}

int64_t recomputed_blocks(const Config& c, const ActivationQuestion& q) {
  const auto [every, budget_mb] = c.section<RecomputeSection>();
  if (budget_mb > 0) return blocks_to_recompute(q, static_cast<int64_t>(budget_mb * kMiB));
  return every > 0 ? q.model.layers / every : 0;
}

}  // namespace

MemoryPlan plan_memory(const Config& c, int ranks, ModelShape model) {
  MemoryPlan plan;
  plan.batches = c.resolve_batches(ranks);
  plan.sharding = c.resolve_sharding(ranks);
  plan.model = std::move(model);
  MemoryQuestion& q = plan.question;
  q.parameters = plan.model.parameters;
  q.optimizer = optimizer_of(c.section<OptimizerSection>());
  q.stage = plan.sharding.stage;
  q.dp_shard = plan.sharding.dp_shard;
  read_precision(c, &q);
  read_zero(c, &q);
  q.group_bytes = group_bytes(c, ranks);
  const ExchangeShape exchange = exchange_of(c, q, ranks);
  q.exchange_bytes = exchange_bytes(exchange, q.parameters);
  const auto checkpoint = c.section<CheckpointSection>();
  if (checkpoint.async && checkpoint.saves_during_run())
    q.snapshot_bytes = snapshot_bytes(q, exchange);
  plan.rank = rank_memory(q);
  return plan;
}

MemoryPlan plan_memory(const Config& c, int ranks) {
  const ModelGeometry geometry = geometry_of(c);
  MemoryPlan plan = plan_memory(c, ranks, model_shape(geometry));
  MemoryQuestion& q = plan.question;
  ActivationQuestion a{geometry, plan.batches.micro, q.compute_bytes ? 4 : q.weight_bytes, 0};
  plan.recomputed = a.recomputed = recomputed_blocks(c, a);
  plan.activations = activation_memory(a);
  q.activation_kept = plan.activations.kept;
  q.activation_bytes = plan.activations.peak;
  plan.rank = rank_memory(q);
  return plan;
}

std::string MemoryPlan::describe() const {
  const auto& q = question;
  std::string text =
      q.stage == 0 ? fmt::format("{} {}, no ZeRO", batches.dp, batches.dp == 1 ? "rank" : "ranks")
                   : fmt::format("ZeRO-{} over {} {}", q.stage, q.dp_shard,
                                 q.dp_shard == 1 ? "rank" : "ranks");
  if (q.stage > 0 && sharding.dp_replicate > 1)
    text += fmt::format(", {} times", sharding.dp_replicate);
  text += fmt::format("; {}; {} bytes a weight, {} a gradient", q.optimizer.type, q.weight_bytes,
                      q.gradient_bytes);
  if (q.master_bytes) text += ", float32 masters";
  if (q.share_weights) text += "; one copy of the weights a host";
  if (q.states_on_disk) text += "; states on disk";
  if (q.parameters_on_disk) text += "; parameters on disk";
  text += fmt::format("; {} {} at once", batches.micro, batches.micro == 1 ? "sample" : "samples");
  if (q.exchange_bytes > 0)
    text += fmt::format("; {} for compression or averaging", mebibytes(q.exchange_bytes));
  if (q.snapshot_bytes > 0) text += "; checkpoints while training goes on";
  if (recomputed > 0) text += fmt::format(", {} blocks recomputed", recomputed);
  return text;
}

std::string mebibytes(int64_t bytes) {
  if (bytes < 1024) return fmt::format("{} B", bytes);
  const double b = static_cast<double>(bytes);
  if (b < kMiB) return fmt::format("{:.1f} KiB", b / 1024);
  return b < 1024 * kMiB ? fmt::format("{:.1f} MiB", b / kMiB)
                         : fmt::format("{:.2f} GiB", b / kMiB / 1024);
}

}  // namespace trireme
