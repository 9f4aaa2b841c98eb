// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "trireme/base/export.h"
#include "trireme/comm/group.h"
#include "trireme/grad/compression/compression_hook.h"
#include "trireme/tensor/parameter_table.h"

namespace trireme {

/// The codec for gradients and its parameters; a codec ignores the options that do not apply to it
/// (compression_option_applies). For bounds, see base/compression_limits.h; for costs,
/// docs/compression.md.
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

/// The valid types, for messages: "none, int8, topk, sign, powersgd or auto".
TRIREME_API std::string compression_types();
/// Whether codec `type` uses the option of that name ("block", "rank", …).
TRIREME_API bool compression_option_applies(const std::string& type, const std::string& option);
/// UsageError for an unknown type, or for an option of this type that is out of range.
TRIREME_API void check_compression(const CompressionOptions& options);

/// Makes the hook for that codec; pass its hook() as DdpOptions::hook or ReducerOptions::hook.
/// `parameters` are the reducer's, in its order: for DDP, those of the module that require a
/// gradient, in order. Returns nullptr for "none". UsageError as for check_compression, and for a
/// PowerSGD rank that is larger than any matrix among the parameters allows; auto omits PowerSGD in
/// that case.
///
/// One object serves one reducer. Save its state(visitor) in the run's checkpoint; the state is
/// sharded (it differs between ranks) and must be loaded on the same number of ranks.
TRIREME_API std::shared_ptr<CompressionHook> make_compression(const CompressionOptions& options,
                                                              const NamedTensors& parameters,
                                                              const Group& group);

}  // namespace trireme
