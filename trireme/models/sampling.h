// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "trireme/base/export.h"
#include "trireme/models/gpt.h"

namespace trireme {

struct SamplingOptions {
  int64_t count = 256;       // bytes to add
  double temperature = 0.8;  // 0: always the likeliest
  int64_t top_k = 0;         // only the k likeliest; 0: all
  uint64_t seed = 42;
};

/// What a byte-level model writes after `prompt` (which is not repeated; an empty one stands for a
/// newline): byte i is a pure function of the weights, the text so far and (seed, i). The model
/// sees the last `context` bytes. Runs in eval mode without gradients and restores the mode.
/// `on_byte` sees each byte as it comes; false from it stops. Throws UsageError for a model that is
/// not over bytes, a negative count, temperature or top_k; NumericError where no score is finite.
TRIREME_API std::string generate(Gpt& model, std::string_view prompt,
                                 const SamplingOptions& options = {},
                                 const std::function<bool(char)>& on_byte = {});

}  // namespace trireme
