// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Storage.h>
#include <c10/util/hash.h>

#include <map>
#include <unordered_map>
#include <utility>
#include <vector>

#include "trireme/base/slice.h"

namespace trireme {

/// Finds what a walk shows under several names: the same elements in the same memory, as the same
/// slice. Keeps no memory alive, and of tens of thousands of tensors neither names nor shapes.
class SameTensors {
 public:
  /// The number under which it was shown first; `number`, its own from now on, if it was not.
  size_t first_of(const Slice& slice, const at::Tensor& t, size_t number) {
    if (t.layout() != at::kStrided || !t.has_storage() || t.numel() == 0) return number;
    const Place place{t.storage().unsafeGetStorageImpl(), t.storage_offset(), form_of(slice, t)};
    const auto at =
        shown_.try_emplace(place, Shown{number, t.storage().getWeakStorageImpl()}).first;
    return at->second.number;
  }

 private:
  struct Place {
    const c10::StorageImpl* storage;
    int64_t offset;  // elements
    size_t form;
    bool operator==(const Place&) const = default;
  };
  struct Hash {
    size_t operator()(const Place& p) const noexcept {
      return c10::get_hash(p.storage, p.offset, p.form);
    }
  };
  struct Shown {
    size_t number;
    c10::weak_intrusive_ptr<c10::StorageImpl> alive;  // and its address is no other's meanwhile
  };

  /// Numbers what is the same about all tensors of one dtype, shape and slice: there are few such.
  size_t form_of(const Slice& slice, const at::Tensor& t) {
    form_ = {static_cast<int64_t>(t.scalar_type())};
    const auto add = [this](const auto& list) {
      form_.push_back(static_cast<int64_t>(list.size()));
      form_.insert(form_.end(), list.begin(), list.end());
    };
    add(t.sizes());
    add(t.strides());
    add(slice.global_shape);
    add(slice.offsets);
    add(slice.lengths);
    if (slice.flat) form_.insert(form_.end(), {slice.flat->begin, slice.flat->count});
    return forms_.try_emplace(form_, forms_.size()).first->second;
  }

  std::map<std::vector<int64_t>, size_t> forms_;
  std::unordered_map<Place, Shown, Hash> shown_;
  std::vector<int64_t> form_;  // keeps its memory
};

}  // namespace trireme
