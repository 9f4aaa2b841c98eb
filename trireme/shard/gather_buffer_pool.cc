// SPDX-License-Identifier: Apache-2.0
#include "trireme/shard/gather_buffer_pool.h"

#include "trireme/base/check.h"
#include "trireme/tensor/host_data.h"

namespace trireme {

at::Tensor GatherBufferPool::take(int64_t elements, const at::TensorOptions& options) {
  const auto dtype = c10::typeMetaToScalarType(options.dtype());
  GatherBuffer* best = nullptr;
  for (GatherBuffer& s : gather_buffers_)
    if (!s.used && s.memory.scalar_type() == dtype && s.memory.numel() >= elements &&
        (!best || s.memory.numel() < best->memory.numel()))
      best = &s;
  if (!best) best = &gather_buffers_.emplace_back(GatherBuffer{group_.empty({elements}, options)});
  best->used = true;
  ++in_use_;
  return best->memory.narrow(0, 0, elements);
}

void GatherBufferPool::give_back(const at::Tensor& gather_buffer) {
  for (GatherBuffer& s : gather_buffers_)
    if (s.used && same_memory(s.memory, gather_buffer)) {
      s.used = false;
      --in_use_;
      return;
    }
  fail<UsageError>("a gather_buffer that is not of this pool was given back");
}

int64_t GatherBufferPool::bytes() const {
  int64_t total = 0;
  for (const GatherBuffer& s : gather_buffers_) total += static_cast<int64_t>(s.memory.nbytes());
  return total;
}

}  // namespace trireme
