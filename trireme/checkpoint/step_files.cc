// SPDX-License-Identifier: Apache-2.0
#include "trireme/checkpoint/step_files.h"

#include <cstdint>
#include <set>

#include "trireme/base/check.h"
#include "trireme/checkpoint/safetensors.h"

namespace trireme {

void Collector::take(const std::string& name, IndexValue v) {
  check<UsageError>(!name.empty() && names_.emplace(name, true).second,
                    "checkpoint: the state names '{}' twice", name);
  held.values[name] = std::move(v);
}

void Collector::tensor(const Slice& slice, at::Tensor local) {
  const auto [at, fresh] = names_.emplace(slice.name, slice.is_whole());
  check<UsageError>(!slice.name.empty() && (fresh || (!at->second && !slice.is_whole())),
                    "checkpoint: the state names '{}' twice", slice.name);
  check<UsageError>(local.defined() && local.numel() == slice.numel(),
                    "checkpoint: '{}' has {} elements, its slice says {}", slice.name,
                    local.defined() ? local.numel() : 0, slice.numel());
  check<UsageError>(!safetensors_dtype_name(local.scalar_type()).empty(),
                    "checkpoint: '{}' is {}, a dtype that safetensors files do not hold",
                    slice.name, c10::toString(local.scalar_type()));
  if (same_.first_of(slice, local) != slice.name) return;
  held.tensors.push_back({slice, safetensors_dtype_name(local.scalar_type())});
  tensors.push_back(local.detach());
}

WriteOrders orders_for(const SavePlan& plan, size_t rank) {
  WriteOrders orders{plan.files, plan.writes[rank]};
  for (PlannedFile& file : orders.files)
    if (file.creator != rank) file.head.clear();
  return orders;
}

BytesOfWrite bytes_in(const Collector& state, const WriteOrders& orders) {
  return [&state, &orders, at_hand = state.tensors.size(), bytes = at::Tensor()](size_t i) mutable {
    const PlannedWrite& w = orders.writes[i];
    if (at_hand != w.tensor) {
      bytes = state.tensors[w.tensor].cpu().contiguous();
      at_hand = w.tensor;
    }
    return static_cast<const void*>(static_cast<const char*>(bytes.data_ptr()) + w.from);
  };
}

void add_checksums(SavePlan& plan, size_t rank, const std::vector<uint64_t>& checksums) {
  size_t next = 0;
  for (const SavePlan::Blocks& blocks : plan.blocks[rank])
    for (size_t i = 0; i < blocks.count; ++i, ++next) {
      check<Corrupt>(next < checksums.size(), "checkpoint: rank {} sent too few checksums", rank);
      blocks.part->blocks.at(blocks.first + i) = checksums[next];
    }
  check<Corrupt>(next == checksums.size(), "checkpoint: rank {} sent too many checksums", rank);
}

}  // namespace trireme
