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
  int buffer_count = 5;  // between the file and the units (2 or more); DeepSpeed's
  /// No buffer, each as large as the largest shard of a unit, may have more.
  int64_t buffer_elements = 100'000'000;
  /// The first shards, up to so many elements together, stay in memory: DeepSpeed's max_in_cpu.
  int64_t in_memory_elements = 0;
};

/// What there is of parameters, in bytes on this rank.
struct ShardFileUse {
  int64_t stored_bytes = 0;    // in the file
  int64_t kept_bytes = 0;      // stay in memory
  int64_t resident_bytes = 0;  // of the stored ones: in memory of their own now (an optimizer
                               // steps, a checkpoint is written); the units' gather buffers aside
  int64_t most_resident_bytes = 0;  // … at most so far
  int64_t buffer_bytes = 0;
};

/// This rank's shards of parameters in a file between uses (ZeRO-Infinity's offload_param): places
/// for them, and the memory they come back to. One thread. UsageError, ResourceError as in
/// offload_file.h. Source: Rajbhandari et al. 2021.
class TRIREME_API ShardFile {
 public:
  explicit ShardFile(ShardFileOptions options);
  ~ShardFile();
  ShardFile(const ShardFile&) = delete;

  /// A place; none: the shard is one of those that stay in memory. Good as long as this object.
  std::optional<OffloadedTensor> add(const std::string& name, int64_t numel, at::ScalarType dtype);
  /// Memory for a shard that comes back, counted as resident until its last tensor goes.
  at::Tensor memory(int64_t numel, const at::TensorOptions& options);
  ShardFileUse use() const;

 private:
  struct Resident {
    int64_t now = 0, most = 0;
  };
  ShardFileOptions options_;
  std::unique_ptr<OffloadPool> pool_;  // from the first that is stored
  std::shared_ptr<Resident> resident_ = std::make_shared<Resident>();
  int64_t stored_bytes_ = 0, kept_bytes_ = 0, kept_elements_ = 0;
};

}  // namespace trireme
