// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string_view>
#include <vector>

#include "trireme/base/export.h"
#include "trireme/tensor/parameter_layout.h"

// The random tensors of random.h, for a rank that holds a part: each element is keyed by its place
// in the whole tensor, so the parts of any split put together have the bits of the whole.
namespace trireme {

/// Fills t, which holds the layout's boxes, with what normal_(whole, key, mean, std) gives them.
/// UsageError if t has not the layout's local shape.
TRIREME_API void normal_(at::Tensor t, uint64_t key, double mean, double std,
                         const ParameterLayout& layout);
/// Likewise, of uniform_().
TRIREME_API void uniform_(at::Tensor t, uint64_t key, double low, double high,
                          const ParameterLayout& layout);

/// keyed_dropout() of the part `box` of an activation whose shape is `whole`: drops what the call
/// on the whole would. Dim 0 of the whole is the samples of the RandomScope, and a box has all of
/// them. x: the box's lengths. Each call counts as one of the module's, as it does there.
TRIREME_API at::Tensor keyed_dropout(const at::Tensor& x, double p, std::string_view module_name,
                                     at::IntArrayRef whole, const Box& box);
/// The same of several boxes, which lie side by side in dim `dim` of x: one of the module's calls.
TRIREME_API at::Tensor keyed_dropout(const at::Tensor& x, double p, std::string_view module_name,
                                     at::IntArrayRef whole, const std::vector<Box>& boxes,
                                     int64_t dim);

}  // namespace trireme
