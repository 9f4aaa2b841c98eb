// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "trireme/base/export.h"
#include "trireme/grad/compression/compression_hook.h"

namespace trireme {

struct TopKOptions {
  double density = 0.1;        // share of each parameter's elements that travels, (0, 1]
  CompressionCommon common{};  // without error feedback what is small never arrives
};

/// The largest elements of each parameter: ⌈density × elements⌉ of them, as place and bfloat16
/// value (grad/compression/top_k_wire.h), equally many on every rank. By parameter, since gradients
/// of one layer may be far smaller than another's and yet, under Adam, matter as much. Error
/// feedback keeps the others until they are among the largest.
///
/// One all_gather a bucket: a rank sends (n−1) × 4 bytes for each element that travels, or 2 and a
/// bit for every element, whichever is less; sums are in rank order. Beyond ranks ≈ 2/density this
/// is more than an all_reduce. Leaves at most (1−density) of the energy.
///
/// Memory: (n+1) × 4 density bytes an element for the wire, or less; 4 for error feedback.
///
/// Source: Aji & Heafield, "Sparse Communication for Distributed Gradient Descent", EMNLP 2017;
/// Stich et al., "Sparsified SGD with Memory", NeurIPS 2018.
TRIREME_API std::shared_ptr<CompressionHook> top_k_hook(const NamedTensors& parameters,
                                                        const Group& group,
                                                        const TopKOptions& options = {});
TRIREME_API std::unique_ptr<Codec> top_k_codec(double density);

/// The indices of the k elements of largest magnitude, ascending; of equal ones those that come
/// first. A sample guesses the bound, one pass collects what is above it, and only those are
/// selected among. Elements are finite.
TRIREME_API std::vector<int32_t> largest_elements(const float* x, int64_t n, int64_t k);

}  // namespace trireme
