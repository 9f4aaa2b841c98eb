// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "trireme/base/compression_options.h"
#include "trireme/config/fields.h"

namespace trireme {

/// How gradients are encoded between ranks. Fields that the codec does not use keep their defaults.
/// See docs/compression.md.
struct CompressionSection {
  CompressionOptions codec;
  std::string clip = "auto";

  void fields(Fields& f) {
    const char* any_codec = "compression.type=int8,topk,sign,powersgd,auto";
    f.field({.path = "compression.type",
             .choices = "none int8 topk sign powersgd auto",
             .help = "encoding of gradients between ranks; auto measures the link and chooses for "
                     "each bucket"},
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
             .help = "fraction of each parameter's elements that is sent"},
            codec.density);
    f.field({.path = "compression.rank",
             .min = 1,
             .max = compression_limits::kMostRank,
             .when = "compression.type=powersgd,auto",
             .help = "rank of the two factors that are sent in place of a matrix"},
            codec.rank);
    f.field({.path = "compression.min_compression",
             .min = 1,
             .max = f.kWide,
             .when = "compression.type=powersgd,auto",
             .help = "a matrix that the two factors shrink by less than this is sent uncompressed"},
            codec.min_compression);
    f.field({.path = "compression.start_step",
             .min = 0,
             .max = 1e15,
             .when = any_codec,
             .help = "initial steps with uncompressed gradients"},
            codec.start_step);
    f.field({.path = "compression.clip",
             .choices = "auto own mean",
             .when = any_codec,
             .help = "what gradient_clipping clips; own: each rank's own gradient before it is "
                     "encoded; mean: the mean of what arrived; auto: the mean with sign, else own"},
            clip);
    f.field({.path = "compression.error_feedback",
             .when = any_codec,
             .help = "add what was not sent to the next gradient"},
            codec.error_feedback);
    f.field({.path = "compression.max_residual",
             .min = compression_limits::kLeastResidual,
             .max = compression_limits::kMostResidual,
             .when = "compression.type=auto",
             .help = "fraction of a bucket's energy that a codec may leave out"},
            codec.max_residual);
    f.field({.path = "compression.decide_every",
             .min = compression_limits::kLeastDecideEvery,
             .max = 1e15,
             .when = "compression.type=auto",
             .help = "steps between two choices"},
            codec.decide_every);
    f.field({.path = "compression.warm_start",
             .when = "compression.type=powersgd,auto",
             .help = "start from the factors of the last step"},
            codec.warm_start);
  }
};

}  // namespace trireme
