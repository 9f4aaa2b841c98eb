// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace trireme {

/// A hash of the bits and dtype of elements, each by its place: those of a tensor's flattened
/// elements [begin, end), which are elements `first`, first + 1, … of something whole. Digests of
/// its parts add up (modulo 2^64) to the digest of the whole, so that ranks with other parts can
/// compare it. Waits for the tensor's device.
int64_t element_digest(const at::Tensor& t, int64_t begin, int64_t end, int64_t first);

}  // namespace trireme
