// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Storage.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "trireme/optim/optimizer.h"

// Inside shard: the storages of an optimizer's state, whose bytes come and go while the tensors on
// them stay. A storage without bytes keeps its size, so that views of it can be made.
namespace trireme::detail {

class OffloadStorages {
 public:
  OffloadStorages() = default;
  /// Those that the optimizer shows, each once; not those of `parameters`. UsageError for state
  /// that is not in CPU memory.
  OffloadStorages(Optimizer& optimizer, const NamedTensors& parameters);

  std::vector<int64_t> bytes() const;
  /// Handles of them are held by somebody else.
  bool shared() const;
  /// Their bytes from now on: base + offsets[i]. With an owner, which lives as long as they are
  /// used, they are a view of the file.
  void place(const void* base, const std::vector<int64_t>& offsets,
             const std::shared_ptr<const void>& owner = {}) const;
  void copy_to(void* base, const std::vector<int64_t>& offsets) const;
  void drop() const;

 private:
  struct Entry {
    c10::Storage storage;
    size_t own_handles;  // of the optimizer and of this entry
  };
  std::vector<Entry> entries_;
};

}  // namespace trireme::detail
