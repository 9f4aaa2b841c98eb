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

/// Which codec gradients travel in, and its numbers; what a codec does not know it does not look
/// at (compression_option_applies). Bounds: base/compression_limits.h. docs/compression.md says
/// what each costs.
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

/// "none, int8, topk, sign, powersgd or auto".
TRIREME_API std::string compression_types();
/// Whether codec `type` looks at the option of that name ("block", "rank", …).
TRIREME_API bool compression_option_applies(const std::string& type, const std::string& option);
/// UsageError for an unknown type, or a number out of its range that this type looks at.
TRIREME_API void check_compression(const CompressionOptions& options);

/// The hook of that codec, for DdpOptions::hook or ReducerOptions::hook (its hook()). `parameters`
/// are the reducer's, in its order: DDP's are those of the module that require a gradient, in
/// order. nullptr for "none": no hook is needed. UsageError as check_compression, and for a rank
/// that no matrix among the parameters has; auto leaves PowerSGD out there.
///
/// One object serves one reducer. Its state(visitor) belongs into the run's checkpoint; state is
/// saved sharded (what ranks remember differs), and loaded on as many ranks.
TRIREME_API std::shared_ptr<CompressionHook> make_compression(const CompressionOptions& options,
                                                              const NamedTensors& parameters,
                                                              const Group& group);

}  // namespace trireme
