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
/// One object serves one reducer. Save its state(visitor) in the run's checkpoint. Error feedback
/// is per rank; if it is loaded on a different number of ranks, its sum over ranks is preserved.
TRIREME_API std::shared_ptr<CompressionHook> make_compression(const CompressionOptions& options,
                                                              const NamedTensors& parameters,
                                                              const Group& group);

}  // namespace trireme
