// SPDX-License-Identifier: Apache-2.0
#include "trireme/checkpoint/step_files.h"

#include <cstdint>
#include <optional>
#include <set>
#include <utility>

#include "trireme/base/check.h"
#include "trireme/checkpoint/safetensors.h"
#include "trireme/tensor/device.h"

namespace trireme {

namespace {

void refuse_empty(const std::string& name) {
  check<UsageError>(!name.empty(),
                    "checkpoint: the state has an empty name: give every tensor and every "
                    "value a name");
}

}  // namespace

void Collector::take(const std::string& name, IndexValue v) {
  refuse_empty(name);
  check<UsageError>(names_.emplace(name, true).second, "checkpoint: the state names '{}' twice",
                    name);
  held.values[name] = std::move(v);
}

void Collector::tensor(const Slice& slice, at::Tensor local) {
  refuse_empty(slice.name);
  const auto [at, fresh] = names_.emplace(slice.name, slice.is_whole());
  check<UsageError>(fresh || (!at->second && !slice.is_whole()),
                    "checkpoint: the state names '{}' twice", slice.name);
  check<UsageError>(local.defined() && local.numel() == slice.numel(),
                    "checkpoint: '{}' has {} elements, its slice says {}", slice.name,
                    local.defined() ? local.numel() : 0, slice.numel());
  check<UsageError>(!safetensors_dtype_name(local.scalar_type()).empty(),
                    "checkpoint: '{}' is {}, a dtype that safetensors files do not hold",
                    slice.name, c10::toString(local.scalar_type()));
  if (same_.first_of(slice, local, tensors.size()) != tensors.size()) return;
  held.tensors.push_back({slice, safetensors_dtype_name(local.scalar_type())});
  tensors.push_back(local.detach());
}

WriteOrders orders_for(const SavePlan& plan, size_t rank) {
  WriteOrders orders{plan.files, plan.writes[rank]};
  for (PlannedFile& file : orders.files)
    if (file.creator != rank) file.head.clear();
  return orders;
}

namespace {

/// One tensor's bytes in host memory; those of a device are on their way.
struct Brought {
  size_t tensor;
  at::Tensor bytes;
  DeviceEvent there;

  static Brought of(const Collector& state, size_t tensor) {
    const at::Tensor& t = state.tensors[tensor];
    if (!is_asynchronous(t.device())) return {tensor, t.contiguous(), {}};
    const at::Tensor whole = t.contiguous();
    const at::Tensor pinned = host_buffer(whole.sizes(), whole.scalar_type(), whole.device());
    copy_in_stream_order(pinned, whole);
    return {tensor, pinned, DeviceStream::current(whole.device()).record()};
  }
};

}  // namespace

BytesOfWrite bytes_in(const Collector& state, const WriteOrders& orders) {
  // While a tensor of a device is written, the next one comes.
  return [&state, &orders, here = std::optional<Brought>(),
          next = std::optional<Brought>()](size_t i) mutable {
    const PlannedWrite& w = orders.writes[i];
    if (!here || here->tensor != w.tensor) {
      here.reset();
      here = next && next->tensor == w.tensor ? std::move(*next) : Brought::of(state, w.tensor);
      next.reset();
      size_t n = i + 1;
      while (n < orders.writes.size() && orders.writes[n].tensor == w.tensor) ++n;
      if (n < orders.writes.size() &&
          is_asynchronous(state.tensors[orders.writes[n].tensor].device()))
        next = Brought::of(state, orders.writes[n].tensor);
      here->there.wait_on_host();
    }
    return static_cast<const void*>(static_cast<const char*>(here->bytes.data_ptr()) + w.from);
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
