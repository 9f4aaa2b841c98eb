// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "trireme/base/export.h"
#include "trireme/grad/compression/compression_hook.h"

namespace trireme {

struct SignOptions {
  CompressionCommon common{};  // without error feedback, training with signs does not converge
};

/// One bit per element, its sign, and for each parameter the mean magnitude, which is the scale
/// that leaves the least energy unsent. The fraction left is 1 − (mean |x|)² ÷ mean x²: 0.36 if
/// elements are normally distributed, 1 − 1/m if only one of m elements is not zero.
///
/// One all_gather per bucket: a rank sends (n−1) × (1/8 byte per element + 4 bytes per parameter),
/// and every rank sums all signs in rank order. Two phases, as in 1-bit Adam, would send 2(n−1)/n
/// times as much as one rank's signs but round the sum to one bit a second time; that pays off only
/// beyond about ten ranks, where one bit retains little of a sum of many signs. Slow links usually
/// connect few ranks.
///
/// Memory per element: (n+1)/8 bytes for communication, 4 for error feedback.
///
/// Source: Seide et al. 2014; Karimireddy et al. 2019 (scaled sign with error feedback).
TRIREME_API std::shared_ptr<CompressionHook> sign_hook(const NamedTensors& parameters,
                                                       const Group& group,
                                                       const SignOptions& options = {});
TRIREME_API std::unique_ptr<Codec> sign_codec();

}  // namespace trireme
