// SPDX-License-Identifier: Apache-2.0
#include "trireme/tensor/tensor_overlaps.h"

#include "trireme/base/check.h"

namespace trireme {

std::optional<TensorOverlaps::Entry> TensorOverlaps::entry_of(const std::string& name,
                                                              const at::Tensor& t) {
  if (!t.defined() || t.layout() != at::kStrided || !t.has_storage() || t.numel() == 0)
    return std::nullopt;
  int64_t last = t.storage_offset();
  for (int64_t d = 0; d < t.dim(); ++d) last += (t.size(d) - 1) * t.stride(d);
  const auto each = static_cast<int64_t>(t.element_size());
  return Entry{name,
               t.storage_offset() * each,
               (last + 1) * each,
               t.scalar_type(),
               t.sizes().vec(),
               t.strides().vec()};
}

std::optional<TensorOverlaps::Met> TensorOverlaps::find(const at::Tensor& t) const {
  // Most tensors have a storage of their own: that is known before anything is described.
  if (!t.defined() || !t.has_storage()) return std::nullopt;
  const auto it = storages_.find(t.storage().unsafeGetStorageImpl());
  if (it == storages_.end() || it->second.alive.expired()) return std::nullopt;
  const auto entry = entry_of("", t);
  if (!entry) return std::nullopt;
  std::optional<Met> met;
  for (const Entry& e : it->second.entries) {
    if (e.end <= entry->begin || entry->end <= e.begin) continue;
    if (e.begin == entry->begin && e.dtype == entry->dtype && e.sizes == entry->sizes &&
        e.strides == entry->strides)
      return Met{e.name, true};
    if (!met) met = Met{e.name, false};
  }
  return met;
}

void TensorOverlaps::add(const std::string& name, const at::Tensor& t) {
  auto entry = entry_of(name, t);
  if (!entry) return;
  const c10::StorageImpl* const impl = t.storage().unsafeGetStorageImpl();
  const auto it = storages_.find(impl);
  if (it != storages_.end()) return it->second.entries.push_back(std::move(*entry));
  storages_.emplace(impl, Storage{t.storage().getWeakStorageImpl(), {std::move(*entry)}});
}

void TensorOverlaps::refuse(const std::string& who, const std::string& name,
                            const at::Tensor& t) const {
  if (const auto met = find(t))
    fail<UsageError>(
        "{}: '{}' shares memory with '{}' but is a different tensor (a view, or made by "
        "set_data()), and they would be separated here. To tie weights, register one tensor under "
        "both names; otherwise clone() one of them",
        who, name, met->name);
}

void refuse_overlaps(const std::string& who, const NamedTensors& moved,
                     const NamedTensors& others) {
  TensorOverlaps taken;
  for (const NamedTensors* list : {&moved, &others})
    for (const auto& [name, t] : *list) {
      taken.refuse(who, name, t);
      if (list == &moved) taken.add(name, t);
    }
}

}  // namespace trireme
