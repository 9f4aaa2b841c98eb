// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>

#include "trireme/base/export.h"
#include "trireme/grad/compression/compression_hook.h"

namespace trireme {

struct Int8Options {
  int64_t block = 256;  // elements per scale: 8 … 65,536
  CompressionCommon common{};
};

/// A quarter of the bytes: each block of elements is sent as int8 with one float32 scale (largest
/// magnitude ÷ 127), so each rounding changes an element by at most half the scale.
///
/// Two calls per bucket: an all_to_all of quantised chunks, after which each rank sums its chunk in
/// float32, in rank order, and rounds the sum once more; then an all_gather. Every rank decodes the
/// same bytes. A rank sends about 2(n−1)/n × (1 + 4/block) bytes per element. Error feedback keeps
/// the errors of both roundings, that of the sum on the rank that owns the chunk.
///
/// Memory per element: 3 bytes for communication, 4 for error feedback, 4/n for the sum.
///
/// Source: block-wise quantisation: Dettmers et al., "8-bit Optimizers via Block-wise
/// Quantization", ICLR 2022; two phases: the compressed all-reduce of 1-bit Adam.
TRIREME_API std::shared_ptr<CompressionHook> int8_hook(const NamedTensors& parameters,
                                                       const Group& group,
                                                       const Int8Options& options = {});
TRIREME_API std::unique_ptr<Codec> int8_codec(int64_t block);

}  // namespace trireme
