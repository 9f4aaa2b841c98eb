// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trireme/base/export.h"

// Which part of a dimension each rank of a tensor-parallel group gets. Pure: integers in, values
// out, without LibTorch.
namespace trireme {

/// Elements [begin, begin + length) of a dimension.
struct Part {
  int64_t begin = 0, length = 0;
  int64_t end() const { return begin + length; }
  bool operator==(const Part&) const = default;
};

/// Divides `total` elements among `ranks` in order, in multiples of `granule` (the last one may be
/// cut short). Lengths differ by at most one granule; the later ranks have the longer parts.
TRIREME_API std::vector<Part> split_evenly(int64_t total, int64_t ranks, int64_t granule = 1);

/// Why `total` cannot be divided so that each rank gets something, or "". `what`: "a vocabulary".
TRIREME_API std::string fault_of_split(const std::string& what, int64_t total, int64_t ranks,
                                       int64_t granule = 1);

/// A rank's heads of an attention layer.
struct HeadParts {
  Part queries, keys;   // in heads; values as keys
  int64_t sharers = 1;  // ranks that hold this rank's key/value heads, neighbours in the group
  bool speaks = true;   // this rank is the first of them
};

/// Why `heads` query heads in groups that share `kv_heads` key/value heads cannot be divided, or
/// "".
TRIREME_API std::string fault_of_heads(int64_t heads, int64_t kv_heads, int64_t ranks);

/// Whole heads to each rank. With fewer key/value heads than ranks each of them is held by
/// ranks / kv_heads ranks. The numbers must have no fault_of_heads().
TRIREME_API HeadParts split_heads(int64_t heads, int64_t kv_heads, int64_t ranks, int64_t rank);

/// The rows of a fused projection [queries | keys | values] that these heads are.
TRIREME_API std::vector<Part> qkv_rows(const HeadParts& parts, int64_t heads, int64_t kv_heads,
                                       int64_t head_width);

}  // namespace trireme
