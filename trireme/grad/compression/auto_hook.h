// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "trireme/base/export.h"
#include "trireme/grad/compression/compression_hook.h"

namespace trireme {

struct AutoOptions {
  double max_residual = 0.4;   // share of a bucket's energy that a codec may leave, (0, 1)
  int64_t decide_every = 500;  // rounds from one choice to the next, ≥ 10
  CompressionCommon common{};
};

/// Chooses among codecs, bucket by bucket. At the start of every period it sends one round in each
/// codec (the plain one first), and sees what encoding and decoding take, what is sent and which
/// share of its energy each bucket leaves; then it times small and large all_reduces and takes, for
/// each bucket, the fastest codec that leaves at most max_residual
/// (grad/compression/codec_choice.h). What ranks measured is compared first, the slowest and the
/// worst count, so all choose alike.
///
/// There is one memory for all codecs: what one of them left, the next one sends. Each bucket's
/// codec stays for the period. State: the choice and what led to it, and the codecs' own.
///
/// `codecs` beside the plain one, by preference where they are equally fast; at most 8.
TRIREME_API std::shared_ptr<CompressionHook> auto_hook(std::vector<std::unique_ptr<Codec>> codecs,
                                                       const NamedTensors& parameters,
                                                       const Group& group,
                                                       const AutoOptions& options = {});

}  // namespace trireme
