// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>

#include "trireme/base/export.h"
#include "trireme/grad/compression/compression_hook.h"

namespace trireme {

struct Int8Options {
  int64_t block = 256;  // elements that share a scale: 8 … 65,536
  CompressionCommon common{};
};

/// A quarter of the bytes: each block of elements travels as int8 with one float32 scale (largest
/// magnitude ÷ 127), so an element is off by at most half a scale each time it is rounded.
///
/// Two calls a bucket: all_to_all of quantised shares; each rank adds its share in float32, in rank
/// order, and rounds the sum once more; all_gather. Every rank decodes the same bytes. A rank sends
/// about 2(n−1)/n × (1 + 4/block) bytes an element. With error feedback both roundings are kept,
/// the sum's by the rank that owns the share.
///
/// Memory: 3 bytes an element for the wire, 4 for error feedback, 4/n for the sum.
///
/// Source: block-wise quantisation as of Dettmers et al., "8-bit Optimizers via Block-wise
/// Quantization", ICLR 2022; two phases as of 1-bit Adam's compressed all-reduce.
TRIREME_API std::shared_ptr<CompressionHook> int8_hook(const NamedTensors& parameters,
                                                       const Group& group,
                                                       const Int8Options& options = {});
TRIREME_API std::unique_ptr<Codec> int8_codec(int64_t block);

}  // namespace trireme
