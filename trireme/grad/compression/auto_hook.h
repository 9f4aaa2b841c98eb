// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "trireme/base/export.h"
#include "trireme/grad/compression/compression_hook.h"

namespace trireme {

struct AutoOptions {
  double max_residual = 0.4;  // fraction of a bucket's energy that a codec may leave unsent, (0, 1)
  int64_t decide_every = 500;  // rounds between choices, ≥ 10
  CompressionCommon common{};
};

/// Chooses a codec for each bucket. At the start of every period it sends one round in each codec
/// (the plain one first), and measures the time for encoding and decoding, the bytes sent and the
/// fraction of each bucket's energy that is left unsent; then it times small and large all_reduces
/// and picks, for each bucket, the fastest codec that leaves at most max_residual
/// (grad/compression/codec_choice.h). Ranks first combine their measurements, taking the slowest
/// and the worst, so all of them choose the same.
///
/// All codecs share one error feedback: what one of them left unsent, the next one sends. Each
/// bucket keeps its codec for the period. State: the choice, the measurements it is based on, and
/// the codecs' own state.
///
/// `codecs`: at most 8, in addition to the plain one; of equally fast ones, the earlier is
/// preferred.
TRIREME_API std::shared_ptr<CompressionHook> auto_hook(std::vector<std::unique_ptr<Codec>> codecs,
                                                       const NamedTensors& parameters,
                                                       const Group& group,
                                                       const AutoOptions& options = {});

}  // namespace trireme
