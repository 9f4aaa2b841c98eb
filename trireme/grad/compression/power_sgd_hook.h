// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "trireme/base/export.h"
#include "trireme/grad/compression/compression_hook.h"

namespace trireme {

/// With torch's names (PowerSGDState) and defaults; start_powerSGD_iter is common.start_step, and
/// use_error_feedback common.error_feedback.
struct PowerSgdOptions {
  int64_t matrix_approximation_rank = 1;  // 1 … 64
  /// A matrix [n, m] is compressed where (n + m) × rank × this < n × m.
  double min_compression_rate = 2;
  bool warm_start = true;  // each step goes on from the last one's factors; false: random ones
  double orthogonalization_epsilon = 0;  // added to norms
  int64_t seed = 0;                      // of the first factors
  CompressionCommon common{};
};

/// Every parameter of two dims or more, as a matrix [first dim, others], travels as two factors of
/// low rank: P = M Q, added over ranks and made orthonormal; Q = Mᵀ P, added over ranks; the result
/// is P Qᵀ: one step of a power iteration that warm start goes on with. Parameters of one dim, and
/// those that would not shrink enough, travel as they are in the call of P.
///
/// Two all_reduces a bucket, of Σ n × rank + what is not compressed, and of Σ m × rank floats. The
/// factors are equal on all ranks and every rank multiplies them in the same order.
///
/// Memory: Q, m × rank floats a matrix, kept by parameter (buckets may be laid out anew), as much
/// for the wire, 4 bytes an element for error feedback. State: "hook.q.<parameter>".
///
/// UsageError, naming parameter, shape and the largest rank that fits: a rank above the smaller
/// side of every matrix there is (nothing would be compressed); or above that of one that would be
/// compressed all the same, because min_compression_rate is below 1. With a rate of 1 or more,
/// matrices that are too small for the rank travel as they are, as torch's do.
///
/// A direction that dies out (a gradient of zeros) is drawn anew; torch divides by zero there.
///
/// Source: Vogels et al., "PowerSGD", NeurIPS 2019; torch's powerSGD_hook.
TRIREME_API std::shared_ptr<CompressionHook> power_sgd_hook(const NamedTensors& parameters,
                                                            const Group& group,
                                                            const PowerSgdOptions& options = {});
TRIREME_API std::unique_ptr<Codec> power_sgd_codec(const NamedTensors& parameters,
                                                   const PowerSgdOptions& options);

/// How a parameter travels.
struct PowerSgdShape {
  int64_t rows = 0, cols = 0;
  bool compressed = false;
};
/// UsageError as above.
TRIREME_API std::vector<PowerSgdShape> plan_power_sgd(const NamedTensors& parameters, int64_t rank,
                                                      double min_compression_rate);

}  // namespace trireme
