// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "trireme/base/export.h"

namespace trireme {

/// What stands in a header beside the tensors, so that no tensor can be called so.
inline constexpr const char* kSafetensorsMetadata = "__metadata__";

struct SafetensorsTensor {
  std::string name;
  std::string dtype;  // "F32", …
  std::vector<int64_t> shape;
};

/// The order in which files hold tensors: falling alignment, then names.
TRIREME_API bool comes_before(const SafetensorsTensor& a, const SafetensorsTensor& b);

/// Length and header of a file with these tensors in this order, padded with spaces so that the
/// data begins 8-aligned. UsageError, beginning with `where`, for a text that is not UTF-8, a
/// tensor that is called kSafetensorsMetadata, or too long a header.
TRIREME_API std::string safetensors_head(const std::vector<SafetensorsTensor>& tensors,
                                         const std::map<std::string, std::string>& metadata,
                                         const std::string& where);

}  // namespace trireme
