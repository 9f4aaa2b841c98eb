// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Storage.h>

#include <optional>
#include <vector>

namespace trireme {

/// Which storage a tensor had when the mark was made. torch::load() into a module, Module::to() and
/// set_data() leave the tensor as it is and put another storage under it, without a trace: whoever
/// keeps something beside a parameter (a flat buffer that it is a part of, a float32 copy) asks
/// here. Keeps no memory alive, and no later storage is taken for the old one.
class StorageMark {
 public:
  explicit StorageMark(const at::Tensor& t)
      : dtype_(t.scalar_type()), device_(t.device()), sizes_(t.sizes().vec()) {
    if (t.has_storage()) storage_.emplace(t.storage().getWeakStorageImpl());
  }
  bool moved(const at::Tensor& t) const {
    return t.has_storage() != storage_.has_value() ||
           (storage_ && t.storage().unsafeGetStorageImpl() != storage_->_unsafe_get_target());
  }
  /// Dtype, device and shape are what they were.
  bool fits(const at::Tensor& t) const {
    return t.scalar_type() == dtype_ && t.device() == device_ && t.sizes() == sizes_;
  }

 private:
  at::ScalarType dtype_;
  at::Device device_;
  std::vector<int64_t> sizes_;
  std::optional<c10::weak_intrusive_ptr<c10::StorageImpl>> storage_;
};

}  // namespace trireme
