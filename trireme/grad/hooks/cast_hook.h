// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <c10/core/ScalarType.h>

#include <string_view>

#include "trireme/base/export.h"
#include "trireme/grad/comm_hook.h"

// Communication hooks that reduce gradients in another dtype than they are kept in.
namespace trireme {

/// Gradients travel and are added as `wire`, and come back rounded to the bucket's dtype: float16
/// or bfloat16 halves a float32 bucket's bytes; float32 adds half-precision gradients in float32 on
/// every backend. A bucket that is of that dtype is reduced as it is.
///
/// A sum over n ranks in a narrower dtype travels as the mean and is multiplied by n on its way
/// back, so float16 overflows no sooner than the gradients themselves do. Adds wire bytes ×
/// elements of memory (Group::empty, kept for the next step). A hook and its copies may serve
/// several reducers, on several rank threads. UsageError for another dtype than float16, bfloat16,
/// float32 and float64.
///
/// Source: torch's fp16_compress_hook and bf16_compress_hook; DeepSpeed's communication_data_type.
TRIREME_API CommHook cast_hook(at::ScalarType wire);

/// By name: "none" (one all_reduce, in the bucket's dtype), "fp16", "bf16". UsageError for others.
TRIREME_API CommHook named_comm_hook(std::string_view name);

}  // namespace trireme
