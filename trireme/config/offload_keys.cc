// SPDX-License-Identifier: Apache-2.0
// DeepSpeed's offload_optimizer, offload_param and aio: what ZeRO keeps on disk instead of in
// memory. This version trains on the CPU, where "cpu" moves nothing (zero_rules.cc says so).
#include <string>

#include "trireme/config/key_sections.h"

namespace trireme::detail {
namespace {

const char kStates[] = "zero_optimization.offload_optimizer.device=nvme";
const char kParameters[] = "zero_optimization.offload_param.device=nvme";
const char kEither[] =
    "zero_optimization.offload_optimizer.device=nvme|zero_optimization.offload_param.device=nvme";

KeyInfo key(const std::string& path, KeyType type, const char* value, const char* when,
            const char* help) {
  return {.path = path,
          .type = type,
          .default_json = value,
          .when = when,
          .idle = true,
          .help = help,
          .deepspeed = true};
}

KeyInfo count(const std::string& path, const char* value, double min, double max, const char* when,
              const char* help) {
  KeyInfo k = key(path, KeyType::integer, value, when, help);
  k.min = min;
  k.max = max;
  return k;
}

KeyInfo device(const std::string& path, const char* help) {
  KeyInfo k = key(path, KeyType::text, "\"none\"", "zero_optimization.stage=1,2,3", help);
  k.choices = "none cpu nvme";
  return k;
}

KeyInfo older(const std::string& path, const std::string& of) {
  return {.path = path,
          .type = KeyType::boolean,
          .deepspeed = true,
          .alias_of = of,
          .alias_true = "\"cpu\""};
}

constexpr const char* kPinned = "pins host memory for copies to a GPU; training is on the CPU";

constexpr const char* kOneThread =
    "is of threads; one submits to the kernel, which has queue_depth of them under way";

}  // namespace

std::vector<KeyInfo> offload_keys() {
  const std::string optimizer = "zero_optimization.offload_optimizer.",
                    parameters = "zero_optimization.offload_param.";
  return {
      device(optimizer + "device",
             "where optimizer state and master weights are between steps: nvme is a file in "
             "nvme_path"),
      key(optimizer + "nvme_path", KeyType::text, "", kStates,
          "folder for that file, on a fast disk"),
      count(optimizer + "buffer_count", "4", 2, 1024, kStates,
            "buffers of sub_group_size elements between the file and the optimizer"),
      key(optimizer + "pipeline_read", KeyType::boolean, "false", kStates,
          "the next part is read while one is stepped"),
      key(optimizer + "pipeline_write", KeyType::boolean, "false", kStates,
          "a part is written while the next is stepped"),
      count("zero_optimization.sub_group_size", "1000000000", 1, 0x1p53, kStates,
            "elements that the optimizer reads, steps and writes at once"),
      device(
          parameters + "device",
          "where shards of parameters are while no unit needs them: nvme is a file in nvme_path"),
      key(parameters + "nvme_path", KeyType::text, "", kParameters,
          "folder for that file, on a fast disk"),
      count(parameters + "buffer_count", "5", 2, 1024, kParameters,
            "buffers between the file and the units"),
      count(parameters + "buffer_size", "100000000", 1, 0x1p53, kParameters,
            "elements that such a buffer may have: as many as a rank's shard of the largest unit"),
      // DeepSpeed's default, 1e9, leaves all parameters of most models in memory: whoever names a
      // disk wants them there.
      count(parameters + "max_in_cpu", "0", 0, 0x1p53, kParameters,
            "elements of a rank's shards that stay in memory: the first units"),
      count("aio.block_size", "1048576", 4096, 0x1p31, kEither, "bytes of one read or write"),
      count("aio.queue_depth", "8", 1, 4096, kEither, "reads and writes under way at once"),

      older("zero_optimization.cpu_offload", optimizer + "device"),
      older("zero_optimization.cpu_offload_param", parameters + "device"),
      older("zero_optimization.cpu_offload_params", parameters + "device"),
      without_effect("zero_optimization.cpu_offload_use_pin_memory", kPinned),
      without_effect(optimizer + "pin_memory", kPinned),
      without_effect(parameters + "pin_memory", kPinned),
      without_effect(optimizer + "fast_init",
                     "a new file of state begins as a hole that reads as zeros: always fast"),
      without_effect(optimizer + "ratio",
                     "divides the update between a GPU and its host; training is on the CPU"),
      without_effect(optimizer + "super_offload",
                     "schedules updates between a GPU and its host; training is on the CPU"),
      without_effect(optimizer + "cpuadam_cores_perc",
                     "the launcher divides cores among ranks (OMP_NUM_THREADS)"),
      without_effect("aio.intra_op_parallelism", kOneThread),
      without_effect("aio.thread_count", kOneThread),
      without_effect("aio.single_submit", "chooses how requests are handed over; the same bytes"),
      without_effect("aio.overlap_events", "requests are always handed over before older ones end"),
      without_effect("aio.use_gds", "reads into a GPU's memory; training is on the CPU"),
  };
}

}  // namespace trireme::detail
