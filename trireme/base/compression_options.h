// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

namespace trireme {

/// The codec for gradients and its parameters; a codec ignores the options that do not apply to it
/// (compression_option_applies). The section "compression" of a configuration, the codecs and the
/// memory plan share these defaults. For costs, see docs/compression.md.
struct CompressionOptions {
  std::string type = "none";   // one of compression_types()
  int64_t block = 256;         // int8: elements per scale
  double density = 0.1;        // topk: fraction of the elements that is sent
  int64_t rank = 4;            // powersgd: rank of the factors
  double min_compression = 2;  // powersgd: matrices that shrink less are sent uncompressed, > 0
  bool warm_start = true;      // powersgd: start from the last step's factors
  int64_t seed = 0;            // powersgd: seed for the first factors
  bool error_feedback = true;  // add what was not sent to the next step's gradient
  int64_t start_step = 2;      // number of first steps that are sent uncompressed, ≥ 0
  double max_residual = 0.4;   // auto: fraction of a bucket's energy that a step may leave unsent
  int64_t decide_every = 500;  // auto: steps between choices
};

// Their bounds, for the table of keys and for the checks on a rank.
namespace compression_limits {

inline constexpr int64_t kLeastBlock = 8, kMostBlock = 65536;
inline constexpr double kLeastDensity = 1e-6, kMostDensity = 1;
inline constexpr int64_t kMostRank = 64;
inline constexpr double kLeastResidual = 1e-6, kMostResidual = 0.99;
inline constexpr int64_t kLeastDecideEvery = 10;

}  // namespace compression_limits

}  // namespace trireme
