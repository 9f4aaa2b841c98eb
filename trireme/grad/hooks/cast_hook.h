// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <c10/core/ScalarType.h>

#include <string_view>

#include "trireme/base/export.h"
#include "trireme/grad/comm_hook.h"

// Communication hooks that reduce gradients in a dtype other than the one in which they are stored.
namespace trireme {

/// Gradients are sent and summed in dtype `wire` and rounded back to the bucket's dtype: float16 or
/// bfloat16 halves the bytes of a float32 bucket; float32 sums half-precision gradients in float32
/// on every backend. A bucket that already has dtype `wire` is reduced unchanged.
///
/// For a sum over n ranks in a narrower dtype, the mean is sent and multiplied by n afterwards, so
/// float16 overflows no sooner than the gradients themselves do. Extra memory: the bytes of `wire`
/// for each element (Group::empty, kept for the next step). A hook and its copies may serve several
/// reducers, on several rank threads. UsageError for a dtype other than float16, bfloat16, float32
/// and float64.
///
/// Source: torch's fp16_compress_hook and bf16_compress_hook; DeepSpeed's communication_data_type.
TRIREME_API CommHook cast_hook(at::ScalarType wire);

/// By name: "none" (one all_reduce, in the bucket's dtype), "fp16", "bf16". UsageError for others.
TRIREME_API CommHook named_comm_hook(std::string_view name);

}  // namespace trireme
