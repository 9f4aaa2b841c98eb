// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trireme/base/export.h"
#include "trireme/planner/model_shape.h"

// What compression and averaging keep on a rank, beside weights, gradients and optimizer. Pure.
namespace trireme {

/// A codec and its numbers, as the section "compression" has them.
struct CodecShape {
  std::string type = "none";  // none, int8, topk, sign, powersgd, auto
  bool error_feedback = true;
  int64_t block = 256, rank = 4;
  double density = 0.1, min_compression = 2;
};

struct ExchangeShape {
  CodecShape gradients;
  int gradient_bytes = 4;
  std::string averaging = "none";  // none, local_sgd, diloco, hierarchical
  CodecShape pseudo_gradients;     // of diloco
  int ranks = 1;
};

/// Bytes for the wire and for what was not sent, of `parameters` in one codec.
TRIREME_API int64_t codec_bytes(const CodecShape& codec, int ranks, int element_bytes,
                                const std::vector<ParameterShape>& parameters);
TRIREME_API int64_t exchange_bytes(const ExchangeShape& exchange,
                                   const std::vector<ParameterShape>& parameters);

}  // namespace trireme
