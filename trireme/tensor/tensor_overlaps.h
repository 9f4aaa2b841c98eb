// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <c10/core/Storage.h>

#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "trireme/base/export.h"
#include "trireme/tensor/parameter_table.h"

namespace trireme {

/// Which of several tensors lie in one another's memory: views, what set_data() and detach() make.
/// Keeps no memory alive; what has gone since it was added is met by nobody.
class TRIREME_API TensorOverlaps {
 public:
  struct Met {
    std::string name;
    bool same = false;  // all elements, in the same order and dtype
  };
  /// The first tensor added that shares bytes with `t`; one that is the same before others.
  std::optional<Met> find(const at::Tensor& t) const;
  /// UsageError where there is one: `who` gives tensors memory of their own, and would part the
  /// two.
  void refuse(const std::string& who, const std::string& name, const at::Tensor& t) const;
  void add(const std::string& name, const at::Tensor& t);

 private:
  struct Entry {
    std::string name;
    int64_t begin, end;  // bytes in the storage
    at::ScalarType dtype;
    std::vector<int64_t> sizes, strides;
  };
  struct Storage {
    c10::weak_intrusive_ptr<c10::StorageImpl> alive;  // and its address is no other's meanwhile
    std::vector<Entry> entries;
  };
  static std::optional<Entry> entry_of(const std::string& name, const at::Tensor& t);
  std::unordered_map<const c10::StorageImpl*, Storage> storages_;
};

/// … where a tensor of `moved` shares memory with another of them or with one of `others`.
TRIREME_API void refuse_overlaps(const std::string& who, const NamedTensors& moved,
                                 const NamedTensors& others = {});

}  // namespace trireme
