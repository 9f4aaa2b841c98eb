// SPDX-License-Identifier: Apache-2.0
#include "trireme/planner/memory_plan.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "trireme/config/sections/compression.h"
#include "trireme/planner/exchange_memory.h"

namespace trireme {
namespace {

constexpr double kMiB = 1048576;
constexpr int64_t kControl = 471040, kPair = 139264, kSmallBlocks = 4 << 20;

int bytes_of(const std::string& type) { return type == "fp32" ? 4 : 2; }

/// Which of DeepSpeed's and Apex's sections stores weights in half precision: fp16, bf16 or fp32.
std::string stored_type(const Config& c) {
  if (c.get_bool("fp16.enabled")) return "fp16";
  if (c.get_bool("bf16.enabled")) return "bf16";
  const std::string level = c.get_bool("amp.enabled") ? c.get_string("amp.opt_level") : "O0";
  return level == "O2" || level == "O3" ? c.get_string("amp.dtype") : "fp32";
}

OptimizerShape optimizer_of(const Config& c) {
  OptimizerShape o{c.get_string("optimizer.type")};
  const char *momentum = "optimizer.params.momentum", *centered = "optimizer.params.centered";
  const char* amsgrad = "optimizer.params.amsgrad";
  o.momentum = c.applies(momentum) && c.get_double(momentum) > 0;
  o.centered = c.applies(centered) && c.get_bool(centered);
  o.amsgrad = c.applies(amsgrad) && c.get_bool(amsgrad);
  return o;
}

bool on_disk(const Config& c, const std::string& section) {
  const std::string device = "zero_optimization." + section + ".device";
  return c.applies(device) && c.get_string(device) == "nvme";
}

void read_precision(const Config& c, MemoryQuestion* q) {
  const std::string type = stored_type(c);
  q->weight_bytes = q->gradient_bytes = bytes_of(type);
  q->wire_bytes = c.has("communication_data_type")
                      ? bytes_of(c.get_string("communication_data_type"))
                      : q->gradient_bytes;
  q->master_bytes = type == "fp32" ? 0 : 4;
  q->compute_bytes = type == "fp16" && c.get_bool("fp16.emulate") ? 4 : 0;
}

/// The local engine's control memory (comm/local/control.h) and its window for small blocks, of a
/// rank that is a process.
int64_t group_bytes(const Config& c, int64_t ranks) {
  if (ranks < 2 || c.get_string("comm.backend") != "local") return 0;
  const int64_t staging = ranks <= 2 ? 256 : ranks <= 4 ? 512 : 1024;
  return kControl + ranks * kPair + 2 * staging * 1024 + kSmallBlocks;
}

void read_zero(const Config& c, MemoryQuestion* q) {
  auto elements = [&](const char* path) { return c.applies(path) ? c.get_int(path) : 0; };
  const char *share = "zero_optimization.share_weights",
             *bucket = "zero_optimization.reduce_bucket_size";
  q->share_weights = c.applies(share) && c.get_bool(share);
  const double asked_mb = c.get_double("comm.bucket_mb");
  const double bucket_mb = asked_mb > 0                              ? asked_mb
                           : c.get_string("comm.backend") == "local" ? 4
                                                                     : 25;
  q->bucket_elements = c.applies(bucket) && c.has(bucket)
                           ? c.get_int(bucket)
                           : static_cast<int64_t>(bucket_mb * kMiB / q->gradient_bytes);
  q->prefetch_elements = elements("zero_optimization.stage3_prefetch_bucket_size");
  q->persistence_threshold = elements("zero_optimization.stage3_param_persistence_threshold");
  q->live_elements = elements("zero_optimization.stage3_max_live_parameters");
  q->states_on_disk = on_disk(c, "offload_optimizer");
  q->parameters_on_disk = on_disk(c, "offload_param");
  q->state_buffer_elements = elements("zero_optimization.sub_group_size");
  if (q->states_on_disk) {  // one part is stepped; with a pipeline another is read, one written
    const int64_t parts = 1 + c.get_bool("zero_optimization.offload_optimizer.pipeline_read") +
                          c.get_bool("zero_optimization.offload_optimizer.pipeline_write");
    q->state_buffer_elements *= parts;
  }
  if (q->parameters_on_disk)
    q->parameter_buffer_elements = c.get_int("zero_optimization.offload_param.buffer_count") *
                                       c.get_int("zero_optimization.offload_param.buffer_size") +
                                   c.get_int("zero_optimization.offload_param.max_in_cpu");
}

ExchangeShape exchange_of(const Config& c, const MemoryQuestion& q, int ranks) {
  ExchangeShape e;
  e.ranks = ranks;
  e.gradient_bytes = q.gradient_bytes;
  e.averaging = c.get_string("averaging.type");
  if (c.applies("averaging.compression"))
    e.pseudo_gradients.type = c.get_string("averaging.compression");
  e.gradients = c.section<CompressionSection>().codec;
  return e;
}

int64_t recomputed_blocks(const Config& c, const ActivationQuestion& q) {
  const char *every = "training.recompute_every", *budget = "training.activation_memory_mb";
  if (!c.applies(every)) return 0;
  if (c.get_double(budget) > 0)
    return blocks_to_recompute(q, static_cast<int64_t>(c.get_double(budget) * kMiB));
  return c.get_int(every) > 0 ? q.model.layers / c.get_int(every) : 0;
}

}  // namespace

MemoryPlan plan_memory(const Config& c, int ranks) {
  MemoryPlan plan;
  plan.batches = c.resolve_batches(ranks);
  plan.sharding = c.resolve_sharding(ranks);
  const ModelGeometry geometry = geometry_of(c);
  plan.model = model_shape(geometry);
  MemoryQuestion& q = plan.question;
  q.parameters = plan.model.parameters;
  q.optimizer = optimizer_of(c);
  q.stage = plan.sharding.stage;
  q.dp_shard = plan.sharding.dp_shard;
  read_precision(c, &q);
  read_zero(c, &q);
  q.group_bytes = group_bytes(c, ranks);
  q.exchange_bytes = exchange_bytes(exchange_of(c, q, ranks), q.parameters);

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
