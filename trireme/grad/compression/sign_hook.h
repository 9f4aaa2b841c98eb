// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "trireme/base/export.h"
#include "trireme/grad/compression/compression_hook.h"

namespace trireme {

struct SignOptions {
  CompressionCommon common{};  // without error feedback signs do not converge
};

/// One bit an element: its sign, and for each parameter the mean magnitude, which is the scale that
/// leaves least. What it leaves of a parameter is 1 − (mean |x|)² ÷ mean x² of its energy: 0.36
/// where elements are normally distributed, all but 1/m where one of m elements is alone.
///
/// One all_gather a bucket: a rank sends (n−1) × (1/8 byte an element + 4 a parameter), and every
/// rank adds all signs in rank order. Two phases, as 1-bit Adam's, would send 2(n−1)/n × as much
/// and round the sum to one bit a second time; that pays beyond some ten ranks, where a sum of many
/// signs has little left in one bit. Slow links join few.
///
/// Memory: (n+1)/8 bytes an element for the wire, 4 for error feedback.
///
/// Source: Seide et al. 2014; Karimireddy et al. 2019 (scaled sign with error feedback).
TRIREME_API std::shared_ptr<CompressionHook> sign_hook(const NamedTensors& parameters,
                                                       const Group& group,
                                                       const SignOptions& options = {});
TRIREME_API std::unique_ptr<Codec> sign_codec();

}  // namespace trireme
