// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "trireme/base/export.h"
#include "trireme/shard/offload/offload_params.h"

namespace trireme {

struct ShardFileOptions {
  OffloadFileOptions file = {};
  /// Buffers between the file and the units (2 or more); DeepSpeed's buffer_count.
  int buffer_count = 5;
  /// Limit for the size of a buffer, which is that of the largest shard of a unit.
  int64_t buffer_elements = 100'000'000;
  /// The first shards, up to this many elements in total, stay in memory: DeepSpeed's max_in_cpu.
  int64_t in_memory_elements = 0;
};

/// Bytes of parameters on this rank.
struct ShardFileUsage {
  int64_t stored_bytes = 0;  // in the file
  int64_t kept_bytes = 0;    // always in memory
  /// Stored ones that are in memory now (while an optimizer steps or a checkpoint is written), not
  /// counting the units' gather buffers.
  int64_t resident_bytes = 0;
  int64_t most_resident_bytes = 0;  // maximum of resident_bytes so far
  int64_t buffer_bytes = 0;
};

/// Keeps this rank's shards of parameters in a file between uses (ZeRO-Infinity's offload_param):
/// it manages their places in the file and the memory into which they are read. Use from one
/// thread. UsageError and ResourceError as in offload_file.h. Source: Rajbhandari et al. 2021.
class TRIREME_API ShardFile {
 public:
  explicit ShardFile(ShardFileOptions options);
  ~ShardFile();
  ShardFile(const ShardFile&) = delete;

  /// Reserves a place in the file, valid as long as this object; nullopt if the shard is one of
  /// those that stay in memory.
  std::optional<OffloadedTensor> add(const std::string& name, int64_t numel, at::ScalarType dtype);
  /// Memory for a shard that is read back, counted as resident until its last tensor is destroyed.
  at::Tensor memory(int64_t numel, const at::TensorOptions& options);
  ShardFileUsage usage() const;

 private:
  struct Resident {
    int64_t now = 0, most = 0;
  };
  ShardFileOptions options_;
  std::unique_ptr<OffloadPool> pool_;  // exists once a shard is stored
  std::shared_ptr<Resident> resident_ = std::make_shared<Resident>();
  int64_t stored_bytes_ = 0, kept_bytes_ = 0, kept_elements_ = 0;
};

}  // namespace trireme
