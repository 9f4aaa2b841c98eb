// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

namespace trireme {

/// Which codec gradients travel in, and its numbers; what a codec does not know it does not look
/// at (compression_option_applies). The section "compression" of a configuration, the codecs and
/// the memory plan share these defaults. docs/compression.md says what each costs.
struct CompressionOptions {
  std::string type = "none";   // one of compression_types()
  int64_t block = 256;         // int8: elements that share a scale
  double density = 0.1;        // topk: share of the elements that travels
  int64_t rank = 4;            // powersgd: of the factors
  double min_compression = 2;  // powersgd: matrices that shrink less travel as they are, > 0
  bool warm_start = true;      // powersgd: begins with the last step's factors
  int64_t seed = 0;            // powersgd: of the first factors
  bool error_feedback = true;  // what was not sent is added to the next step's gradient
  int64_t start_step = 2;      // steps that travel as they are first, ≥ 0
  double max_residual = 0.4;   // auto: share of a bucket's energy that a step may leave
  int64_t decide_every = 500;  // auto: steps from one choice to the next
};

// Their bounds, for the table of keys and for who checks them on a rank.
namespace compression_limits {

inline constexpr int64_t kLeastBlock = 8, kMostBlock = 65536;
inline constexpr double kLeastDensity = 1e-6, kMostDensity = 1;
inline constexpr int64_t kMostRank = 64;
inline constexpr double kLeastResidual = 1e-6, kMostResidual = 0.99;
inline constexpr int64_t kLeastDecideEvery = 10;

}  // namespace compression_limits

}  // namespace trireme
