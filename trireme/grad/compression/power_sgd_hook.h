// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "trireme/base/export.h"
#include "trireme/grad/compression/compression_hook.h"

namespace trireme {

/// Names and defaults are those of torch's PowerSGDState; its start_powerSGD_iter is
/// common.start_step, and its use_error_feedback is common.error_feedback.
struct PowerSgdOptions {
  int64_t matrix_approximation_rank = 1;  // 1 … 64
  /// A matrix [n, m] is compressed if (n + m) × rank × min_compression_rate < n × m.
  double min_compression_rate = 2;
  bool warm_start = true;  // each step starts from the last one's factors; false: from random ones
  double orthogonalization_epsilon = 0;  // added to norms
  int64_t seed = 0;                      // for the first factors
  CompressionCommon common{};
};

/// Every parameter of two or more dims is treated as a matrix M [first dim, others] and sent as two
/// factors of low rank: P = M Q, summed over ranks and orthonormalised; Q = Mᵀ P, summed over
/// ranks. The result is P Qᵀ, one step of a power iteration that warm start continues. Parameters
/// of one dim, and those that would not shrink enough, are sent uncompressed together with P.
///
/// Two all_reduces per bucket: one of Σ n × rank floats plus the uncompressed elements, and one of
/// Σ m × rank floats. The factors are equal on all ranks, and every rank multiplies them in the
/// same order.
///
/// Memory: Q, m × rank floats per matrix, stored by parameter (the bucket layout may change), the
/// same again for communication, and 4 bytes per element for error feedback. State:
/// "hook.q.<parameter>".
///
/// UsageError, naming the parameter, its shape and the largest rank that fits: if the rank exceeds
/// the smaller side of every matrix (nothing would be compressed), or that of a matrix that would
/// be compressed nevertheless because min_compression_rate is below 1. With a rate of 1 or more,
/// matrices that are too small for the rank are sent uncompressed, as in torch.
///
/// A direction that vanishes (a gradient of zeros) is drawn again at random; torch divides by zero
/// in that case.
///
/// On a device everything is computed there, and nothing but the factors crosses. Products are
/// added in the device's order, so results are near the CPU's; they are equal on ranks whose
/// devices compute alike.
///
/// Source: Vogels et al., "PowerSGD", NeurIPS 2019; torch's powerSGD_hook.
TRIREME_API std::shared_ptr<CompressionHook> power_sgd_hook(const NamedTensors& parameters,
                                                            const Group& group,
                                                            const PowerSgdOptions& options = {});
/// `where` it computes: in host memory, or on the device of the gradients.
TRIREME_API std::unique_ptr<Codec> power_sgd_codec(const NamedTensors& parameters,
                                                   const PowerSgdOptions& options,
                                                   at::Device where = at::kCPU);

/// How a parameter is sent.
struct PowerSgdShape {
  int64_t rows = 0, cols = 0;
  bool compressed = false;
};
/// UsageError as above.
TRIREME_API std::vector<PowerSgdShape> plan_power_sgd(const NamedTensors& parameters, int64_t rank,
                                                      double min_compression_rate);

}  // namespace trireme
