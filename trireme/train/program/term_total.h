// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <string>
#include <vector>

#include "trireme/tensor/host_scalars.h"
#include "trireme/train/program/program.h"

namespace trireme {

/// Returns the total of a micro-batch's terms. `factors` convert each term to the micro-batch's own
/// weight (empty: no conversion). If there are several terms, each is added to `sums`.
at::Tensor total_of_terms(const LossTerms& terms, const std::vector<at::Tensor>& values,
                          const std::map<std::string, double>& factors,
                          std::map<std::string, HostScalars>& sums);

}  // namespace trireme
