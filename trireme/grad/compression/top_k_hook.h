// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "trireme/base/export.h"
#include "trireme/grad/compression/compression_hook.h"

namespace trireme {

struct TopKOptions {
  double density = 0.1;        // fraction of each parameter's elements that is sent, (0, 1]
  CompressionCommon common{};  // without error feedback, small elements are never sent
};

/// The largest elements of each parameter: ⌈density × elements⌉ of them, as position and bfloat16
/// value (grad/compression/top_k_wire.h), the same number on every rank. They are selected per
/// parameter, because the gradients of one layer may be far smaller than another's and yet matter
/// as much under Adam. Error feedback keeps the others until they are among the largest.
///
/// One all_gather per bucket: a rank sends (n−1) × 4 bytes for each selected element, or (n−1) × 2
/// bytes for each selected element and one bit for every element, whichever is less; sums are in
/// rank order. Beyond ranks ≈ 2/density this is more than an all_reduce sends. Leaves at most
/// (1−density) of the energy unsent.
///
/// Memory per element: (n+1) × 4 × density bytes or less for communication, 4 for error feedback.
///
/// Source: Aji & Heafield, "Sparse Communication for Distributed Gradient Descent", EMNLP 2017;
/// Stich et al., "Sparsified SGD with Memory", NeurIPS 2018.
TRIREME_API std::shared_ptr<CompressionHook> top_k_hook(const NamedTensors& parameters,
                                                        const Group& group,
                                                        const TopKOptions& options = {});
TRIREME_API std::unique_ptr<Codec> top_k_codec(double density);

/// The indices of the k elements of largest magnitude, ascending; ties go to the first. The bound
/// is estimated from a sample, one pass collects the elements above it, and the selection is made
/// among those. Elements must be finite.
TRIREME_API std::vector<int32_t> largest_elements(const float* x, int64_t n, int64_t k);

}  // namespace trireme
