// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trireme/base/compression_options.h"
#include "trireme/base/export.h"
#include "trireme/planner/model_shape.h"

// What compression and averaging keep on a rank, beside weights, gradients and optimizer. Pure.
namespace trireme {

struct ExchangeShape {
  CompressionOptions gradients;
  int gradient_bytes = 4;
  std::string averaging = "none";       // none, local_sgd, diloco, hierarchical
  CompressionOptions pseudo_gradients;  // of diloco
  int ranks = 1;
};

/// Bytes for the wire and for what was not sent, of `parameters` in one codec.
TRIREME_API int64_t codec_bytes(const CompressionOptions& codec, int ranks, int element_bytes,
                                const std::vector<ParameterShape>& parameters);
TRIREME_API int64_t exchange_bytes(const ExchangeShape& exchange,
                                   const std::vector<ParameterShape>& parameters);

}  // namespace trireme
