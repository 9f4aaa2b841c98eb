// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>

#include "trireme/base/compression_options.h"
#include "trireme/base/export.h"
#include "trireme/comm/group.h"
#include "trireme/grad/compression/compression_hook.h"
#include "trireme/tensor/parameter_table.h"

namespace trireme {

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
