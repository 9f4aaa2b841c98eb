// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "trireme/base/export.h"
#include "trireme/interop/weights/weight_source.h"

namespace trireme {

struct ImportedStep {
  std::string folder;
  uint64_t bytes = 0;  // of all tensors
};

/// Writes the source's tensors as the weights of a step of a run folder, which is made if need be,
/// and publishes it: `latest` names it. The checksums that the source has are compared before
/// anything is written. Takes as much memory as one tensor. Other steps stay; one of this number is
/// replaced. UsageError for a dtype that steps do not hold; Corrupt; ResourceError, and then the
/// folder is as it was.
TRIREME_API ImportedStep import_weights(const interop::WeightSource& source,
                                        const std::string& run_dir, int64_t step);

}  // namespace trireme
