// SPDX-License-Identifier: Apache-2.0
#include "trireme/shard/slab_pool.h"

#include "trireme/base/check.h"

namespace trireme {

at::Tensor SlabPool::take(int64_t elements, const at::TensorOptions& options) {
  const auto dtype = c10::typeMetaToScalarType(options.dtype());
  Slab* best = nullptr;
  for (Slab& s : slabs_)
    if (!s.used && s.memory.scalar_type() == dtype && s.memory.numel() >= elements &&
        (!best || s.memory.numel() < best->memory.numel()))
      best = &s;
  if (!best) best = &slabs_.emplace_back(Slab{group_.empty({elements}, options)});
  best->used = true;
  ++in_use_;
  return best->memory.narrow(0, 0, elements);
}

void SlabPool::give_back(const at::Tensor& slab) {
  for (Slab& s : slabs_)
    if (s.used && s.memory.data_ptr() == slab.data_ptr()) {
      s.used = false;
      --in_use_;
      return;
    }
  fail<UsageError>("a slab that is not of this pool was given back");
}

int64_t SlabPool::bytes() const {
  int64_t total = 0;
  for (const Slab& s : slabs_) total += static_cast<int64_t>(s.memory.nbytes());
  return total;
}

}  // namespace trireme
