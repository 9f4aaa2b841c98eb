// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "trireme/config/fields.h"

namespace trireme {

/// What ZeRO keeps on disk instead of in memory: DeepSpeed's offload_optimizer, offload_param and
/// aio. This version trains on the CPU, where "cpu" has no effect (rules/zero_rules.cc reports
/// that).
struct OffloadSection {
  struct Optimizer {
    std::string device = "none";
    std::optional<std::string> nvme_path;
    int64_t buffer_count = 4;
    bool pipeline_read = false;
    bool pipeline_write = false;
    bool on_disk() const { return device == "nvme"; }
  } optimizer;
  int64_t sub_group_size = 1'000'000'000;
  struct Parameters {
    std::string device = "none";
    std::optional<std::string> nvme_path;
    int64_t buffer_count = 5;
    int64_t buffer_size = 100'000'000;
    int64_t max_in_cpu = 0;
    bool on_disk() const { return device == "nvme"; }
  } parameters;
  struct Aio {
    int64_t block_size = 1'048'576;
    int64_t queue_depth = 8;
  } aio;

  void fields(Fields& f) {
    const char* states = "zero_optimization.offload_optimizer.device=nvme";
    const char* parameters_there = "zero_optimization.offload_param.device=nvme";
    const char* either =
        "zero_optimization.offload_optimizer.device=nvme|zero_optimization.offload_param.device="
        "nvme";
    const char* sharded = "zero_optimization.stage=1,2,3";
    f.field({.path = "zero_optimization.offload_optimizer.device",
             .choices = "none cpu nvme",
             .when = sharded,
             .idle = true,
             .help = "where optimizer state and master weights are kept between steps; nvme: in a "
                     "file in nvme_path",
             .deepspeed = true},
            optimizer.device);
    f.field({.path = "zero_optimization.offload_optimizer.nvme_path",
             .when = states,
             .idle = true,
             .help = "folder for that file, on a fast disk",
             .deepspeed = true},
            optimizer.nvme_path);
    f.field({.path = "zero_optimization.offload_optimizer.buffer_count",
             .min = 2,
             .max = 1024,
             .when = states,
             .idle = true,
             .help = "buffers of sub_group_size elements between the file and the optimizer",
             .deepspeed = true},
            optimizer.buffer_count);
    f.field({.path = "zero_optimization.offload_optimizer.pipeline_read",
             .when = states,
             .idle = true,
             .help = "read the next part while one is being stepped",
             .deepspeed = true},
            optimizer.pipeline_read);
    f.field({.path = "zero_optimization.offload_optimizer.pipeline_write",
             .when = states,
             .idle = true,
             .help = "write a part while the next is being stepped",
             .deepspeed = true},
            optimizer.pipeline_write);
    f.field({.path = "zero_optimization.sub_group_size",
             .min = 1,
             .max = 0x1p53,
             .when = states,
             .idle = true,
             .help = "elements that the optimizer reads, steps and writes at once",
             .deepspeed = true},
            sub_group_size);
    f.field({.path = "zero_optimization.offload_param.device",
             .choices = "none cpu nvme",
             .when = sharded,
             .idle = true,
             .help = "where parameter shards are kept while no unit needs them; nvme: in a file in "
                     "nvme_path",
             .deepspeed = true},
            parameters.device);
    f.field({.path = "zero_optimization.offload_param.nvme_path",
             .when = parameters_there,
             .idle = true,
             .help = "folder for that file, on a fast disk",
             .deepspeed = true},
            parameters.nvme_path);
    f.field({.path = "zero_optimization.offload_param.buffer_count",
             .min = 2,
             .max = 1024,
             .when = parameters_there,
             .idle = true,
             .help = "buffers between the file and the units",
             .deepspeed = true},
            parameters.buffer_count);
    f.field({.path = "zero_optimization.offload_param.buffer_size",
             .min = 1,
             .max = 0x1p53,
             .when = parameters_there,
             .idle = true,
             .help = "elements per buffer; at least a rank's shard of the largest unit",
             .deepspeed = true},
            parameters.buffer_size);
    // DeepSpeed's default, 1e9, leaves all parameters of most models in memory; users who name a
    // disk want them there.
    f.field(
        {.path = "zero_optimization.offload_param.max_in_cpu",
         .min = 0,
         .max = 0x1p53,
         .when = parameters_there,
         .idle = true,
         .help = "elements of a rank's shards that stay in memory, beginning with the first units",
         .deepspeed = true},
        parameters.max_in_cpu);
    f.field({.path = "aio.block_size",
             .min = 4096,
             .max = 0x1p31,
             .when = either,
             .idle = true,
             .help = "bytes per read or write",
             .deepspeed = true},
            aio.block_size);
    f.field({.path = "aio.queue_depth",
             .min = 1,
             .max = 4096,
             .when = either,
             .idle = true,
             .help = "reads and writes in flight at the same time",
             .deepspeed = true},
            aio.queue_depth);
    f.row({.path = "zero_optimization.cpu_offload",
           .type = KeyType::boolean,
           .deepspeed = true,
           .alias_of = "zero_optimization.offload_optimizer.device",
           .alias_true = "\"cpu\""});
    f.row({.path = "zero_optimization.cpu_offload_param",
           .type = KeyType::boolean,
           .deepspeed = true,
           .alias_of = "zero_optimization.offload_param.device",
           .alias_true = "\"cpu\""});
    f.row({.path = "zero_optimization.cpu_offload_params",
           .type = KeyType::boolean,
           .deepspeed = true,
           .alias_of = "zero_optimization.offload_param.device",
           .alias_true = "\"cpu\""});
  }
};

}  // namespace trireme
