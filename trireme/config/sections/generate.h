// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "trireme/config/fields.h"

namespace trireme {

/// What `trireme generate` writes.
struct GenerateSection {
  std::string prompt = "template <";
  int64_t tokens = 400;
  double temperature = 0.8;
  int64_t top_k = 0;

  void fields(Fields& f) {
    f.field({.path = "generate.prompt", .help = "text to continue"}, prompt);
    f.field({.path = "generate.tokens", .min = 1, .max = f.kMany, .help = "bytes to generate"},
            tokens);
    f.field({.path = "generate.temperature",
             .min = 0,
             .max = 100,
             .help = "sampling temperature; 0: always the likeliest byte"},
            temperature);
    f.field({.path = "generate.top_k",
             .min = 0,
             .max = f.kWide,
             .help = "sample from the k likeliest bytes; 0: from all"},
            top_k);
  }
};

}  // namespace trireme
