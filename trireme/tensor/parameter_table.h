// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "trireme/base/export.h"

// The one address space that grad, optim, shard and checkpoint use for ranges: parameters in the
// order in which the module registered them, each at an element offset in one flat buffer.
namespace trireme {

using NamedTensors = std::vector<std::pair<std::string, at::Tensor>>;

struct ParameterEntry {
  std::string name;
  std::vector<int64_t> shape;
  at::ScalarType dtype;
  int64_t offset = 0;  // in elements, within the flat buffer
  int64_t numel = 0;
  int option_group = 0;  // index into the optimizer's option groups
};

class TRIREME_API ParameterTable {
 public:
  ParameterTable() = default;
  /// The caller leaves out frozen parameters (requires_grad false). Throws UsageError for a
  /// duplicate name.
  explicit ParameterTable(const NamedTensors& parameters);

  const std::vector<ParameterEntry>& entries() const { return entries_; }
  const ParameterEntry& operator[](size_t i) const { return entries_[i]; }
  size_t size() const { return entries_.size(); }
  int64_t numel() const { return numel_; }
  /// Sets option_group by name: the last rule whose pattern (a glob with * and ?) matches wins; a
  /// parameter that no rule matches gets 0.
  void assign_option_groups(const std::vector<std::pair<std::string, int>>& rules);
  /// One line per parameter with its name, dtype and shape. Equal on ranks whose models agree.
  std::string fingerprint() const;

 private:
  std::vector<ParameterEntry> entries_;
  int64_t numel_ = 0;
};

/// Shell-like match: * matches any run of characters, ? matches one.
TRIREME_API bool glob_match(std::string_view pattern, std::string_view text);

}  // namespace trireme
