// SPDX-License-Identifier: Apache-2.0
#include "trireme/shard/shard_file.h"

#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <utility>

#include "trireme/base/check.h"

namespace trireme {

ShardFile::ShardFile(ShardFileOptions options) : options_(std::move(options)) {
  check<UsageError>(options_.buffer_elements > 0 && options_.in_memory_elements >= 0,
                    "offload: buffers of {} elements, {} elements that stay in memory: the first "
                    "must be above zero, the second not below",
                    options_.buffer_elements, options_.in_memory_elements);
}

ShardFile::~ShardFile() = default;

std::optional<OffloadedTensor> ShardFile::add(const std::string& name, int64_t numel,
                                              at::ScalarType dtype) {
  const int64_t bytes = numel * static_cast<int64_t>(c10::elementSize(dtype));
  // The first ones: a smaller one that comes later would not make it faster by much, and users
  // see at once which units stay.
  if (numel == 0 || (stored_bytes_ == 0 && numel <= options_.in_memory_elements - kept_elements_)) {
    kept_elements_ += numel;
    kept_bytes_ += bytes;
    return std::nullopt;
  }
  check<UsageError>(numel <= options_.buffer_elements,
                    "offload: this rank's shard of {} has {} elements, and a buffer may have {}: "
                    "raise offload_param's buffer_size, or shard over more ranks",
                    name, numel, options_.buffer_elements);
  OffloadPool::Entry entry{name, numel, dtype};
  if (pool_)
    pool_->add(std::move(entry));
  else
    pool_ = std::make_unique<OffloadPool>(
        std::vector<OffloadPool::Entry>{std::move(entry)},
        OffloadPoolOptions{options_.file, std::max(2, options_.buffer_count)});
  stored_bytes_ += bytes;
  return (*pool_)[pool_->size() - 1];
}

at::Tensor ShardFile::memory(int64_t numel, const at::TensorOptions& options) {
  const auto bytes = numel * static_cast<int64_t>(options.dtype().itemsize());
  auto block = offload_memory(static_cast<size_t>(bytes));
  resident_->now += bytes;
  resident_->most = std::max(resident_->most, resident_->now);
  void* const at = block.get();
  return at::from_blob(
      at, {numel},
      [block = std::move(block), resident = resident_, bytes](void*) { resident->now -= bytes; },
      options.requires_grad(false));
}

ShardFileUsage ShardFile::usage() const {
  return {stored_bytes_, kept_bytes_, resident_->now, resident_->most,
          pool_ ? pool_->buffer_bytes() : 0};
}

}  // namespace trireme
