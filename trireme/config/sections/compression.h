// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "trireme/base/compression_options.h"
#include "trireme/config/fields.h"

namespace trireme {

/// What gradients are on their way between ranks. Numbers that the codec does not look at keep
/// their defaults. docs/compression.md.
struct CompressionSection {
  CompressionOptions codec;
  std::string clip = "auto";

  void fields(Fields& f) {
    const char* any_codec = "compression.type=int8,topk,sign,powersgd,auto";
    f.field({.path = "compression.type",
             .choices = "none int8 topk sign powersgd auto",
             .help = "what gradients are on their way between ranks; auto measures the link and "
                     "chooses for each bucket"},
            codec.type);
    f.field({.path = "compression.block",
             .min = compression_limits::kLeastBlock,
             .max = compression_limits::kMostBlock,
             .when = "compression.type=int8,auto",
             .help = "elements that share a scale"},
            codec.block);
    f.field({.path = "compression.density",
             .min = compression_limits::kLeastDensity,
             .max = compression_limits::kMostDensity,
             .when = "compression.type=topk,auto",
             .help = "part of each parameter's elements that travels"},
            codec.density);
    f.field({.path = "compression.rank",
             .min = 1,
             .max = compression_limits::kMostRank,
             .when = "compression.type=powersgd,auto",
             .help = "of the two factors that travel in a matrix's place"},
            codec.rank);
    f.field({.path = "compression.min_compression",
             .min = 1,
             .max = f.kWide,
             .when = "compression.type=powersgd,auto",
             .help = "matrices that the two factors make fewer times smaller travel as they are"},
            codec.min_compression);
    f.field({.path = "compression.start_step",
             .min = 0,
             .max = 1e15,
             .when = any_codec,
             .help = "steps whose gradients travel as they are, to begin with"},
            codec.start_step);
    f.field({.path = "compression.clip",
             .choices = "auto own mean",
             .when = any_codec,
             .help = "what gradient_clipping clips: each rank's own gradient before it is encoded, "
                     "or the mean of what arrived; auto: the mean under sign, else its own"},
            clip);
    f.field({.path = "compression.error_feedback",
             .when = any_codec,
             .help = "what was not sent is added to the next gradient"},
            codec.error_feedback);
    f.field({.path = "compression.max_residual",
             .min = compression_limits::kLeastResidual,
             .max = compression_limits::kMostResidual,
             .when = "compression.type=auto",
             .help = "part of a bucket's energy that a codec may leave"},
            codec.max_residual);
    f.field({.path = "compression.decide_every",
             .min = compression_limits::kLeastDecideEvery,
             .max = 1e15,
             .when = "compression.type=auto",
             .help = "steps from one choice to the next"},
            codec.decide_every);
    f.field({.path = "compression.warm_start",
             .when = "compression.type=powersgd,auto",
             .help = "factors begin where those of the last step ended"},
            codec.warm_start);
  }
};

}  // namespace trireme
